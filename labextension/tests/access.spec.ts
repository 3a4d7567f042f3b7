import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';

import { askLimits } from '../src/access/ask';
import { createToken, revokeToken, rotateToken } from '../src/access/calls';
import { ordered, USUAL } from '../src/access/scopes';
import { missing, python, shell, snippets } from '../src/access/snippets';
import { activeBelow, tokenState, tree } from '../src/access/tokenTree';
import {
  leftWords,
  lifetimesSeconds,
  lifetimeWords,
  policyWords,
  usualLifetime
} from '../src/access/tokenWords';
import { FakeServer, json, token } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');
const NOW = Date.parse('2026-06-01T00:00:00Z');

describe('snippets', () => {
  const URL = 'https://hub.example/user/ada/';
  const made = snippets(URL, 'jex_a_b', 'python3', true);

  it('are for Python, AutoGen, clients of MCP and curl, with the place and the token', () => {
    expect(made.map(each => each.id)).toEqual(['python', 'autogen', 'mcp', 'curl']);
    for (const { code } of made) {
      expect(code).toContain('https://hub.example/user/ada/');
      expect(code).toContain('jex_a_b');
      expect(code.endsWith('\n')).toBe(true);
    }
  });

  it('are what was tried against a real server', () => {
    expect(made[0]?.code).toBe(`from jupyter_exec_ext import ExecClient

url = "https://hub.example/user/ada/"
token = "jex_a_b"
with ExecClient(url, token) as client, client.session() as session:
    print(session.run("print(6 * 7)").stdout)
`);
    expect(made[3]?.code).toBe(`api='https://hub.example/user/ada/exec/v1'
auth='Authorization: Bearer jex_a_b'
# over standard input: whoever lists processes sees their arguments
call() { printf '%s' "$auth" | curl -sS -H @- -H 'Content-Type: application/json' "$@"; }
session=$(call -d '{}' "$api/sessions" | cut -d '"' -f 4)
call -d '{"code": "print(6 * 7)"}' "$api/sessions/$session/executions"
call -X DELETE "$api/sessions/$session"
`);
  });

  it('name the kernel where the usual one is not the default', () => {
    expect(made[1]?.code).toContain('from_url(url, token)) as executor');
    expect(snippets(URL, 's', 'xeus', true)[1]?.code).toContain('from_url(url, token), "xeus") as executor');
    expect(snippets(URL, 's', 'xeus', true)[2]?.program).toContain("agent.token --kernel='xeus'\n");
    expect(snippets(URL, 's', 'xeus', false)[2]?.code).toContain("agent.token --kernel='xeus'\n");
  });

  it('keep the token of a client of MCP in a file, and print a configuration without it', () => {
    expect(made[2]?.code).toBe(`(umask 077; cat >agent.token) <<'END'
jex_a_b
END
# the configuration of Cursor; also: claude-code, vscode, codex
jupyter exec mcp --print-config cursor --server 'https://hub.example/user/ada/' --token-file agent.token
`);
    expect(made[2]?.program).toBe(
      "jupyter exec mcp --print-config cursor --stdio --server 'https://hub.example/user/ada/' --token-file agent.token\n"
    );
  });

  it('have a client of MCP start a program where the server has no endpoint', () => {
    const mcp = snippets(URL, 'jex_a_b', 'python3', false)[2];
    expect(mcp?.code).toContain("--print-config cursor --stdio --server 'https://hub.example/user/ada/'");
    expect(mcp?.program).toBeUndefined();
  });

  it('say how to install what they need', () => {
    expect(made.map(each => each.install)).toEqual([
      'pip install jupyter-exec-ext',
      "pip install 'jupyter-exec-ext[autogen02]'",
      "pip install 'jupyter-exec-ext[mcp]'",
      null
    ]);
  });

  it('say which scopes a token lacks for them', () => {
    const [first] = made;
    expect(first && missing(first, USUAL)).toEqual([]);
    expect(first && missing(first, ['sessions:create', 'executions:create'])).toEqual([
      'sessions:delete',
      'executions:read'
    ]);
  });

  it('quote whatever a URL has', () => {
    expect(python('a"b\\c\n')).toBe('"a\\"b\\\\c\\n"');
    expect(shell("it's $x")).toBe("'it'\\''s $x'");
    expect(snippets('http://h/', 's', 'k', true)[3]?.code).toContain("api='http://h/exec/v1'");
  });
});

describe('calls', () => {
  it('tell a secret apart from its token', async () => {
    const answer = { ...token('t'), token: 'jex_t_secret' };
    const server = new FakeServer({
      'POST tokens': json(answer, 201),
      'POST tokens/t/rotate': json(answer),
      'DELETE tokens/t': new Response(null, { status: 204 })
    });
    const request = {
      name: 'n',
      policy: 'default',
      scopes: ['sessions:read'],
      expires_in_seconds: 60,
      limits: askLimits('shell')
    };
    const issued = await createToken(server.client, request);
    expect(issued.secret).toBe('jex_t_secret');
    expect(JSON.stringify(issued.token)).not.toContain('secret');
    expect(await server.requests[0]?.json()).toEqual(request);
    expect((await rotateToken(server.client, 't')).secret).toBe('jex_t_secret');
    await revokeToken(server.client, 't');
  });
});

describe('tree', () => {
  const parent = token('p', { created_at: '2026-01-01T00:00:00Z' });
  const child = token('c', { parent_id: 'p' });
  const grandchild = token('g', { parent_id: 'c' });
  const other = token('o', { created_at: '2026-02-01T00:00:00Z' });
  const orphan = token('x', { parent_id: 'not listed', created_at: '2025-01-01T00:00:00Z' });

  it('puts tokens below those that made them, the newest first', () => {
    const nodes = tree([grandchild, orphan, parent, child, other]);
    expect(nodes.map(node => node.token.id)).toEqual(['o', 'p', 'x']);
    expect(nodes[1]?.children[0]?.children[0]?.token.id).toBe('g');
  });

  it('counts what a revocation takes along', () => {
    const [node] = tree([parent, { ...child, revoked_at: '2026-01-02T00:00:00Z' }, grandchild]);
    expect(node && activeBelow(node, NOW)).toBe(1);
  });

  it('knows who lets nobody in', () => {
    expect(tokenState(parent, NOW)).toBe('active');
    expect(tokenState({ ...parent, expires_at: '2026-05-31T00:00:00Z' }, NOW)).toBe('expired');
    expect(tokenState({ ...parent, expired: true }, NOW)).toBe('expired');
    expect(tokenState({ ...parent, expired: true, revoked_at: '2026-01-01T00:00:00Z' }, NOW)).toBe('revoked');
  });
});

describe('words', () => {
  it('say how long', () => {
    expect(lifetimeWords(trans, 600)).toBe('10 minutes');
    expect(lifetimeWords(trans, 3600)).toBe('1 hour');
    expect(lifetimeWords(trans, 28800)).toBe('8 hours');
    expect(lifetimeWords(trans, 7 * 86400)).toBe('7 days');
    expect(leftWords(trans, '2026-06-01T00:00:30Z', NOW)).toBe('less than a minute left');
    expect(leftWords(trans, '2026-06-01T00:30:30Z', NOW)).toBe('30 min left');
    expect(leftWords(trans, '2026-06-02T23:00:00Z', NOW)).toBe('47 h left');
    expect(leftWords(trans, '2026-06-08T00:00:00Z', NOW)).toBe('7 d left');
  });

  it('say what a policy limits', () => {
    const policy = {
      name: 'p',
      isolation: 'sandbox',
      max_sessions: 1,
      max_execution_seconds: 60,
      approval: { when: ['shell'] }
    };
    expect(policyWords(trans, policy)).toBe(
      'isolation: sandbox, 1 session at once, at most 1 min for each run, asks you for approval'
    );
    expect(policyWords(trans, { name: 'p', isolation: 'none', max_sessions: null, approval: 'never' })).toBe(
      'no limits of its own'
    );
  });

  it('offer scopes in one order, unknown ones last', () => {
    expect(ordered(['zzz', 'tokens:create', 'sessions:read', 'sessions:create'])).toEqual([
      'sessions:create',
      'sessions:read',
      'tokens:create',
      'zzz'
    ]);
  });
});

describe('lifetimes', () => {
  it('are no longer than the server allows', () => {
    expect(lifetimesSeconds(86400)).toEqual([3600, 28800, 86400]);
    expect(lifetimesSeconds(600)).toEqual([600]);
    expect(lifetimesSeconds()).toContain(30 * 86400);
  });

  it('begin with a day of work, or with the most that there is', () => {
    expect(usualLifetime(lifetimesSeconds())).toBe(28800);
    expect(usualLifetime(lifetimesSeconds(7200))).toBe(3600);
    expect(usualLifetime(lifetimesSeconds(600))).toBe(600);
  });
});
