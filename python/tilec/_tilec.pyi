from typing import Any, NamedTuple

class Diagnostic(NamedTuple):
    code: str
    severity: str
    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    remedy: str

class Error(RuntimeError):
    diagnostics: tuple[Diagnostic, ...]
    status: int

class Artefact:
    manifest: str
    ptx: str
    cubin: bytes
    target: str
    listing: str
    layouts: str
    one_launch: bool
    def params(self, kernel: str) -> tuple[tuple[str, str], ...]: ...
    def load(self, device: int) -> Module: ...
    def select(self, kernel: str, kinds: str, names: tuple[bytes, ...], args: tuple[Any, ...],
               multiprocessors: int) -> tuple[int, str, int, int, int, int, int, float]: ...

class Module: ...

class Launcher:
    def __init__(self, kinds: bytes, names: tuple[bytes, ...]) -> None: ...
    def __call__(self, *args: Any, **keywords: Any) -> Any: ...
    def _add(self, module: Module, kernel: str, checks: tuple[tuple[int, int, int], ...], extras: tuple[Any, ...],
             only: tuple[Any, ...] | None) -> None: ...
    def _allocator(self, allocate: Any, release: Any) -> None: ...
    def _launch(self, args: tuple[Any, ...], stream: int | None) -> bool: ...

version: str
types: tuple[str, ...]
NO_ASSEMBLE: int
DECLARATIONS: int
REMARKS: int
PDL: int
UNINTERRUPTED: int

def compile(name: str, text: bytes, target: str, defines: tuple[tuple[str, str], ...], only: str | None, ptxas: str | None, record: str | None,
            print_after: str | None, layouts: str | None, independent: str | None, flags: int,
            launch: tuple[str, tuple[bytes, ...], tuple[Any, ...], int] | None) -> tuple[Artefact, tuple[Diagnostic, ...]]: ...
def emulate(name: str, text: bytes, target: str | None, defines: tuple[tuple[str, str], ...], kernel: str, kinds: str, names: tuple[bytes, ...],
            args: tuple[Any, ...], seed: int, max_steps: int) -> tuple[Diagnostic, ...]: ...
def describe(tensor: Any, name: str) -> tuple[str, int, tuple[int, ...]]: ...
def device(ordinal: int) -> tuple[str, int]: ...
def log_to(function: Any) -> None: ...
def forked() -> None: ...
