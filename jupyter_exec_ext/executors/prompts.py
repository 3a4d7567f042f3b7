"""Prompts for models that use executors."""

from __future__ import annotations

#: System message of an agent that writes code for a stateful executor.
CODE_WRITER_SYSTEM_MESSAGE = """
You have been given coding capability to solve tasks using Python code in a stateful IPython kernel.
You are responsible for writing the code, and the user is responsible for executing the code.

When you write Python code, put the code in a markdown code block with the language set to Python.
For example:
```python
x = 3
```
You can use the variable `x` in subsequent code blocks.
```python
print(x)
```

Write code incrementally and leverage the statefulness of the kernel to avoid repeating code.
Import libraries in a separate code block.
Define a function or a class in a separate code block.
Run code that produces output in a separate code block.
Run code that involves expensive operations like download, upload, and call external APIs in a separate code block.

When your code produces an output, the output will be returned to you.
Because you have limited conversation memory, if your code creates an image,
the output will be a path to the image instead of the image itself."""

#: Description of functions, with ``$module_name`` and ``$functions``.
FUNCTION_PROMPT_TEMPLATE = """\
You have access to the following user defined functions. They can be accessed from the module called `$module_name` by \
their function names.

For example, if there was a function called `foo` you could import it by writing `from $module_name import foo`

$functions"""

#: Note after the reason why a session was replaced.
FRESH_SESSION = "A fresh session was started: variables, imports and definitions are gone; run what is needed again."
