/** Snippets to paste where an agent is: pure. */

export interface ISnippet {
  readonly id: 'python' | 'autogen' | 'mcp' | 'curl';
  readonly code: string;
  /** For a client that starts a program in place of connecting to a URL, if there is a choice. */
  readonly program?: string;
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
 * @param hasMcp Whether the server has an endpoint for clients of MCP.
 */
export function snippets(url: string, secret: string, kernelName: string, hasMcp: boolean): ISnippet[] {
  const kernel = kernelName === 'python3' ? '' : `, ${python(kernelName)}`;
  const option = kernelName === 'python3' ? '' : ` --kernel=${shell(kernelName)}`;
  const print = (...options: string[]): string =>
    [
      'jupyter exec mcp --print-config cursor',
      ...options,
      `--server ${shell(url)} --token-file agent.token`
    ].join(' ');
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
        '# the configuration of Cursor; also: claude-code, vscode, codex',
        hasMcp ? print() : print('--stdio') + option
      ),
      program: hasMcp ? lines(print('--stdio') + option) : undefined
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
