"""Runs of `tilec test` that have to fail."""
import subprocess


def until_failure(command):
    """(exit code, output) of a run. It is stopped at the first test that fails, whose exit code is 1: the rest tells nothing more."""
    output = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        for line in running.stdout:
            output.append(line)
            if line.startswith("FAIL"):
                running.kill()
                return 1, "".join(output)
    return running.returncode, "".join(output)
