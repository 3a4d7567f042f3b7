/** What tests of several modules need: records, and a server that says what it is told. */

import { ServerConnection } from '@jupyterlab/services';

import { ExecClient } from '../src/api/client';
import type { IExecution, IInfo, ISession, IToken } from '../src/api/types';

export function session(id: string, changes: Partial<ISession> = {}): ISession {
  return {
    id,
    owner: 'owner',
    kernel_name: 'python3',
    language: 'python',
    state: 'idle',
    created_at: '2026-01-01T00:00:00Z',
    last_activity_at: '2026-01-01T00:00:00Z',
    name: '',
    kernel_id: `kernel-${id}`,
    kernel_starts: 1,
    isolation: 'sandbox',
    idle_timeout_seconds: 0,
    attached: false,
    grant_id: null,
    ended_at: null,
    ended_reason: null,
    approved_kinds: [],
    waits_for: null,
    last_outcome: null,
    open_ports: [],
    wanted_rules: [],
    ...changes
  };
}

export function execution(id: string, changes: Partial<IExecution> = {}): IExecution {
  return {
    id,
    session_id: 's1',
    state: 'ok',
    code: 'print(1)',
    created_at: '2026-01-01T00:00:00Z',
    language: null,
    started_at: null,
    finished_at: null,
    execution_count: 1,
    error: null,
    reason: null,
    truncated: null,
    files: [],
    files_omitted: 0,
    approval: null,
    ...changes
  };
}

export function token(id: string, changes: Partial<IToken> = {}): IToken {
  return {
    id,
    principal: `token:${id}`,
    name: `name of ${id}`,
    policy: 'default',
    scopes: ['sessions:read'],
    limits: {},
    created_at: '2026-01-01T00:00:00Z',
    expires_at: '2027-01-01T00:00:00Z',
    created_by: 'ann',
    parent_id: null,
    last_used_at: null,
    revoked_at: null,
    expired: false,
    ...changes
  };
}

export const INFO: IInfo = {
  version: '0.1.0',
  host: 'jupyter_server',
  host_version: '2.21.1',
  features: [],
  caller: { principal: 'owner', display_name: 'Ann', scopes: [] },
  limits: {},
  policies: [],
  unprotected_tokens: false,
  trouble: null,
  default_kernel_name: 'python3',
  kernelspecs: []
};

export type Answer = Response | ((request: Request) => Response | Promise<Response>);

/** A server behind `fetch`: answers by method and path, in order, the last one for ever; 404 for everything else. */
export class FakeServer {
  readonly requests: Request[] = [];
  readonly client: ExecClient;

  constructor(readonly answers: { [methodAndPath: string]: Answer | Answer[] }) {
    const settings = ServerConnection.makeSettings({
      baseUrl: 'http://server.test/user/ann/',
      token: 'secret',
      appendToken: false,
      fetch: (input: RequestInfo) => this._answer(input as Request)
    });
    this.client = new ExecClient(settings);
  }

  private async _answer(request: Request): Promise<Response> {
    this.requests.push(request);
    const path = request.url.replace('http://server.test/user/ann/exec/v1/', '').replace(/[?&]\d+$/, '');
    const answer = this.answers[`${request.method} ${path}`];
    const next = Array.isArray(answer) ? (answer.length > 1 ? answer.shift() : answer[0]) : answer;
    if (next === undefined) {
      return new Response('<h1>Not found</h1>', { status: 404 });
    }
    return typeof next === 'function' ? next(request) : next.clone();
  }
}

export function json(body: unknown, status = 200): Response {
  return new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } });
}

/** An event stream that a test writes, and ends or breaks. */
export class FakeStream {
  readonly response: (request: Request) => Response;
  closed = false;

  constructor() {
    const body = new ReadableStream<Uint8Array>({
      start: controller => {
        this._controller = controller;
      },
      cancel: () => {
        this.closed = true;
      }
    });
    this.response = request => {
      request.signal.addEventListener('abort', () => {
        this.closed = true;
        this._controller?.error(new DOMException('aborted', 'AbortError'));
      });
      return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
    };
  }

  send(event: string, data: unknown, id: string): void {
    this.write(`id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  write(text: string): void {
    this._controller?.enqueue(new TextEncoder().encode(text));
  }

  end(): void {
    this._controller?.close();
  }

  fail(): void {
    this._controller?.error(new TypeError('network error'));
  }

  private _controller: ReadableStreamDefaultController<Uint8Array> | null = null;
}

/** An answer that comes when a test says so. */
export class Late {
  readonly answer = (): Promise<Response> => new Promise(resolve => this._waiting.push(resolve));

  get asked(): boolean {
    return this._waiting.length > 0;
  }

  send(response: Response): void {
    this._waiting.shift()?.(response);
  }

  private readonly _waiting: ((response: Response) => void)[] = [];
}

/** Wait until something is true, at every turn of the event loop; the test's own time limit ends it. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise(resolve => setTimeout(resolve, 1));
  }
}
