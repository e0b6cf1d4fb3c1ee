"""The description of NVML, schema/api/nvml/, and what is made from it: the driver's vocabulary as
far as NVML needs it. All functions have one message: their arguments in their order.
"""
