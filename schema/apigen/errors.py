"""The one error that a wrong description causes."""


class DescriptionError(Exception):
    """Says where (file:line) and what is wrong; printed as one line, exit status 1."""

    def __init__(self, where, message):
        super().__init__(f"{where}: {message}")
