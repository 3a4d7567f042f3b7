/** Snippets to paste where an agent is: pure. */

export interface ISnippet {
  readonly id: 'python' | 'autogen' | 'mcp' | 'curl';
  readonly code: string;
  /** Installs what the code needs; null if it needs nothing of ours. */
  readonly install: string | null;
  /** The scopes without which it does not work. */
  readonly needs: readonly string[];
}

const NEEDS = ['sessions:create', 'sessions:delete', 'executions:create', 'executions:read'];

/**
 * Return snippets that run code with a token.
 *
 * @param url The server's base URL.
 * @param kernelName The server's default kernel.
 */
export function snippets(url: string, secret: string, kernelName: string): ISnippet[] {
  const kernel = kernelName === 'python3' ? '' : `, ${python(kernelName)}`;
  const option = kernelName === 'python3' ? '' : ` --kernel=${shell(kernelName)}`;
  const place = [`url = ${python(url)}`, `token = ${python(secret)}`];
  return [
    {
      id: 'python',
      needs: NEEDS,
      install: 'pip install jupyter-exec-ext',
      code: lines(
        'from jupyter_exec_ext import ExecClient',
        '',
        ...place,
        'with ExecClient(url, token) as client, client.session() as session:',
        '    print(session.run("print(6 * 7)").stdout)'
      )
    },
    {
      id: 'autogen',
      needs: NEEDS,
      install: "pip install 'jupyter-exec-ext[autogen02]'",
      code: lines(
        'from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor, JupyterConnectionInfo',
        '',
        ...place,
        `with JupyterCodeExecutor(JupyterConnectionInfo.from_url(url, token)${kernel}) as executor:`,
        '    # for an agent of AutoGen: code_execution_config={"executor": executor}',
        '    blocks = [CodeBlock("print(6 * 7)", "python")]',
        '    print(executor.execute_code_blocks(blocks).output)'
      )
    },
    {
      id: 'mcp',
      needs: NEEDS,
      install: "pip install 'jupyter-exec-ext[mcp]'",
      // The configuration names absolute paths where the client is, so it is made there; it never holds the token.
      code: lines(
        "(umask 077; cat >agent.token) <<'END'",
        secret,
        'END',
        '# prints the configuration of Cursor; also: claude-code, vscode, codex',
        `jupyter exec mcp --print-config cursor --server ${shell(url)} --token-file agent.token${option}`
      )
    },
    {
      id: 'curl',
      needs: NEEDS,
      install: null,
      code: lines(
        `api=${shell(`${url.replace(/\/*$/, '/')}exec/v1`)}`,
        `auth=${shell(`Authorization: Bearer ${secret}`)}`,
        '# over standard input: whoever lists processes sees their arguments',
        'call() { printf \'%s\' "$auth" | curl -sS -H @- -H \'Content-Type: application/json\' "$@"; }',
        "session=$(call -d '{}' \"$api/sessions\" | cut -d '\"' -f 4)",
        'call -d \'{"code": "print(6 * 7)"}\' "$api/sessions/$session/executions"',
        'call -X DELETE "$api/sessions/$session"'
      )
    }
  ];
}

/**
 * Return what runs code in a kernel that is shared.
 *
 * @param secret Null for a token that its agent has already.
 */
export function attachSnippet(url: string, secret: string | null, kernelId: string): string {
  return lines(
    ...(secret === null ? ['import os', ''] : []),
    'from jupyter_exec_ext import ExecClient',
    '',
    `url = ${python(url)}`,
    `token = ${secret === null ? 'os.environ["JUPYTER_TOKEN"]' : python(secret)}`,
    'with ExecClient(url, token) as client:',
    `    with client.session(kernel_id=${python(kernelId)}) as session:`,
    '        print(session.run("print(6 * 7)").stdout)'
  );
}

/** Return which scopes a snippet needs and a token does not have. */
export function missing(snippet: ISnippet, scopes: readonly string[]): string[] {
  return snippet.needs.filter(each => !scopes.includes(each));
}

/** As a string literal of Python. */
export function python(text: string): string {
  return JSON.stringify(text);
}

/** As one word of a POSIX shell. */
export function shell(text: string): string {
  return `'${text.replace(/'/g, `'\\''`)}'`;
}

function lines(...each: string[]): string {
  return `${each.join('\n')}\n`;
}
