"""apigen: everything about a CUDA function that can be made from its description
(schema/README.md).
"""
