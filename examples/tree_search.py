"""A tree search over code: each step runs three pieces of code side by side in branches, and goes on from the best.

pip install jupyter-exec-ext

Checkpoints and branches need Linux. A script stands for the model, so no key is needed.
"""

import tempfile
from dataclasses import dataclass

from jupyter_exec_ext import CodeBlock, CodeResult, Execution, LocalJupyterServer
from jupyter_exec_ext.client import ExecClient, ExecSession
from jupyter_exec_ext.executors import MarkdownCodeExtractor


@dataclass
class Best:
    """The best of several pieces of code, and the session with its state."""

    session: ExecSession
    code: str
    execution: Execution


def run_best(session: ExecSession, codes: list[str], score: str) -> Best:
    """Run each piece of code in a branch of the session, and keep only the branch with the best score.

    `score` is an expression, which each branch evaluates. If all code fails, the session stays as it was.
    """
    branches = session.branch(len(codes))
    runs = [branch.submit(code) for branch, code in zip(branches, codes, strict=True)]
    results = [run.result() for run in runs]
    scores = [
        float(branch.run(score, check=True).text) if result.ok else float("-inf")
        for branch, result in zip(branches, results, strict=True)
    ]
    best = scores.index(max(scores))
    winner = branches[best] if results[best].ok else session
    for other in [session, *branches]:
        if other is not winner:
            other.close()
    return Best(winner, codes[best], results[best])


class TreeSearchExecutor:
    """Code executor for agents that takes the code blocks of a message as alternatives, with AutoGen's methods."""

    def __init__(self, server: LocalJupyterServer, setup: str, score: str) -> None:
        self._client = ExecClient(server.connection_info)
        self._setup, self._score = setup, score
        self._session = self._begin()

    def _begin(self) -> ExecSession:
        session = self._client.session(name="search")
        session.run(self._setup, check=True)
        return session

    @property
    def code_extractor(self) -> MarkdownCodeExtractor:
        """Finds the code blocks in a message."""
        return MarkdownCodeExtractor()

    def execute_code_blocks(self, code_blocks: list[CodeBlock]) -> CodeResult:
        """Run the blocks in branches, and return the result of the best one."""
        best = run_best(self._session, [block.code for block in code_blocks], self._score)
        self._session = best.session
        return CodeResult(0 if best.execution.ok else 1, f"{best.code}\n{best.execution.to_text()}")

    def restart(self) -> None:
        """Begin anew."""
        self._session.close()
        self._session = self._begin()

    def stop(self) -> None:
        """End the session."""
        self._session.close()
        self._client.close()


# Each message has three alternatives; one of them fails.
MESSAGE = "\n".join(f"```python\n{code}\n```" for code in ("x += 5; x", "x *= 3; x", "x /= 0; x"))


def main() -> None:
    """Search for a way from 1 to 23."""
    with tempfile.TemporaryDirectory() as logs, LocalJupyterServer(log_file=f"{logs}/gateway.log") as server:
        executor = TreeSearchExecutor(server, setup="x = 1", score="-abs(23 - x)")
        for _ in range(3):
            blocks = executor.code_extractor.extract_code_blocks(MESSAGE)
            print(executor.execute_code_blocks(blocks).output)
        executor.stop()


if __name__ == "__main__":
    main()
