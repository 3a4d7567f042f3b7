/** What to paste where an agent is: pure. */

export interface ISnippet {
  readonly id: 'python' | 'autogen' | 'curl';
  readonly language: string;
  readonly code: string;
  /** The scopes without which it does not work. */
  readonly needs: readonly string[];
}

const RUN = ['sessions:create', 'executions:create', 'executions:read'];

/**
 * Return snippets that run code with a token.
 *
 * @param url The server's base URL.
 * @param kernelName The server's default kernel.
 */
export function snippets(url: string, secret: string, kernelName: string): ISnippet[] {
  const kernel = kernelName === 'python3' ? '' : `, ${python(kernelName)}`;
  return [
    {
      id: 'python',
      language: 'python',
      needs: [...RUN, 'sessions:delete'],
      code: [
        'from jupyter_exec_ext import ExecClient',
        '',
        `with ExecClient(${python(url)}, ${python(secret)}) as client, client.session() as session:`,
        '    print(session.run("print(6 * 7)").stdout)',
        ''
      ].join('\n')
    },
    {
      id: 'autogen',
      language: 'python',
      needs: [...RUN, 'sessions:delete'],
      code: [
        'from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor, JupyterConnectionInfo',
        '',
        `server = JupyterConnectionInfo.from_url(${python(url)}, ${python(secret)})`,
        `with JupyterCodeExecutor(server${kernel}) as executor:  # code_execution_config={"executor": executor}`,
        '    print(executor.execute_code_blocks([CodeBlock("print(6 * 7)", "python")]).output)',
        ''
      ].join('\n')
    },
    {
      id: 'curl',
      language: 'bash',
      needs: [...RUN, 'sessions:delete'],
      code: [
        `api=${shell(`${url.replace(/\/*$/, '/')}exec/v1`)}`,
        `header=${shell(`Authorization: Bearer ${secret}`)}`,
        'session=$(curl -sS -H "$header" --json \'{}\' "$api/sessions" | sed \'s/^{"id": *"\\([^"]*\\)".*/\\1/\')',
        'curl -sS -H "$header" --json \'{"code": "print(6 * 7)"}\' "$api/sessions/$session/executions"',
        'curl -sS -H "$header" -X DELETE "$api/sessions/$session"',
        ''
      ].join('\n')
    }
  ];
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
