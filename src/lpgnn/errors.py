"""The one kind of error a user can cause."""


class InputError(ValueError):
    """Bad input, told in one line: the setting, its value, and what is allowed.

    Entry points print the message without a stack trace and exit with code 2.
    """

    def __init__(self, setting: str, value: object, allowed: str) -> None:
        self.setting, self.value, self.allowed = setting, value, allowed
        super().__init__(f"{setting}={value}: {allowed}")

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, object, str]]:
        return InputError, (self.setting, self.value, self.allowed)
