/** `exec/v1` over HTTP, with the server's own settings: its base URL, token, cookies and XSRF protection. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { ApiError, errorOf } from './errors';
import { FrameParser, type IFrame } from './sse';
import type {
  FeedEvent,
  ICheckpoint,
  IExecution,
  IFile,
  IFileChange,
  IFileList,
  IFinishedExecution,
  IFound,
  IGrant,
  IInfo,
  IOpenedPort,
  ISession,
  ISessionNetwork,
  ISessionUsage,
  IToken,
  OutputEvent
} from './types';

const JSON_TYPE = 'application/json';

/** The server sends a comment every 15 s; a connection that is silent for longer than this is dead. */
export const SILENCE_SECONDS = 45;

export interface IFoundPage {
  readonly found: readonly IFound[];
  /** True once all executions are in the server's index. */
  readonly complete: boolean;
}

export class ExecClient {
  constructor(readonly settings: ServerConnection.ISettings) {}

  info(): Promise<IInfo> {
    return this.json<IInfo>('');
  }

  async sessions(ended: boolean): Promise<readonly ISession[]> {
    const answer = await this.json<{ sessions: ISession[] }>(`sessions${ended ? '?ended=true' : ''}`);
    return answer.sessions;
  }

  /** Return what the kernels of sessions use, in bytes, by session, as far as the server can know it. */
  async memory(): Promise<ReadonlyMap<string, number>> {
    // A panel that is left open is no reason for a server to stay.
    const path = 'sessions?memory=true&no_track_activity=1';
    const { sessions } = await this.json<{ sessions: ISession[] }>(path);
    return new Map(sessions.flatMap(({ id, memory_bytes }) => (memory_bytes ? [[id, memory_bytes]] : [])));
  }

  session(sessionId: string): Promise<ISession> {
    return this.json<ISession>(`sessions/${part(sessionId)}`);
  }

  /** Read what a session has used; a view that is left open is no reason for a server to stay. */
  usage(sessionId: string): Promise<ISessionUsage> {
    return this.json<ISessionUsage>(`sessions/${part(sessionId)}/usage?no_track_activity=1`);
  }

  /** Open a port of a session, or make a new link to one that is open. */
  openPort(sessionId: string, port: number): Promise<IOpenedPort> {
    return this.json<IOpenedPort>(`sessions/${part(sessionId)}/ports`, 'POST', { port });
  }

  async closePort(sessionId: string, port: number): Promise<void> {
    await this.request(`sessions/${part(sessionId)}/ports/${port}`, { method: 'DELETE' });
  }

  /** Read what a session's programs asked of the network; a panel that is left open is no reason for a server to stay. */
  network(sessionId: string): Promise<ISessionNetwork> {
    return this.json<ISessionNetwork>(`sessions/${part(sessionId)}/network?no_track_activity=1`);
  }

  /** Allow a session one thing more of the network, until it ends. */
  allowNetwork(sessionId: string, rule: string): Promise<ISessionNetwork> {
    return this.json<ISessionNetwork>(`sessions/${part(sessionId)}/network`, 'POST', { rule });
  }

  /** List a session's checkpoints, the oldest first; a panel that is left open is no reason for a server to stay. */
  async checkpoints(sessionId: string): Promise<readonly ICheckpoint[]> {
    const path = `sessions/${part(sessionId)}/checkpoints?no_track_activity=1`;
    return (await this.json<{ checkpoints: ICheckpoint[] }>(path)).checkpoints;
  }

  /** Make a checkpoint; with `force`, also without what cannot be taken along. */
  checkpoint(sessionId: string, name: string, force: boolean): Promise<ICheckpoint> {
    return this.json<ICheckpoint>(`sessions/${part(sessionId)}/checkpoints`, 'POST', { name, force });
  }

  async deleteCheckpoint(sessionId: string, checkpoint: string): Promise<void> {
    const path = `sessions/${part(sessionId)}/checkpoints/${part(checkpoint)}`;
    await this.request(path, { method: 'DELETE' });
  }

  restore(sessionId: string, checkpoint: string): Promise<ISession> {
    return this.json<ISession>(`sessions/${part(sessionId)}/restore`, 'POST', { checkpoint });
  }

  /** Make a session with the state of a checkpoint or, without one, of the session as it is. */
  async branch(sessionId: string, checkpoint: string | null): Promise<readonly ISession[]> {
    const path = `sessions/${part(sessionId)}/branches`;
    return (await this.json<{ sessions: ISession[] }>(path, 'POST', { checkpoint })).sessions;
  }

  interrupt(sessionId: string): Promise<ISession> {
    return this.json<ISession>(`sessions/${part(sessionId)}/interrupt`, 'POST');
  }

  restart(sessionId: string): Promise<ISession> {
    return this.json<ISession>(`sessions/${part(sessionId)}/restart`, 'POST');
  }

  /** Withdraw the approval of a kind of code for a session, or of all kinds. */
  askAgain(sessionId: string, kind?: string): Promise<ISession> {
    const query = kind === undefined ? '' : `?kind=${part(kind)}`;
    return this.json<ISession>(`sessions/${part(sessionId)}/approved-kinds${query}`, 'DELETE');
  }

  async shutdown(sessionId: string): Promise<void> {
    await this.request(`sessions/${part(sessionId)}`, { method: 'DELETE' });
  }

  /** List a session's newest executions, or the newest of those before one of them; the oldest first. */
  async executions(sessionId: string, limit: number, before?: string): Promise<readonly IExecution[]> {
    const path = `sessions/${part(sessionId)}/executions?limit=${limit}${cursor(before)}`;
    return (await this.json<{ executions: IExecution[] }>(path)).executions;
  }

  /** Find the newest executions that have a text, or the newest of those before one of them; the newest first. */
  async search(text: string, limit: number, signal: AbortSignal, before?: string): Promise<IFoundPage> {
    const path = `executions?query=${part(text)}&limit=${limit}${cursor(before)}`;
    return (await (await this.request(path, { signal })).json()) as IFoundPage;
  }

  execution(executionId: string): Promise<IFinishedExecution> {
    return this.json<IFinishedExecution>(`executions/${part(executionId)}`);
  }

  cancel(executionId: string): Promise<IExecution> {
    return this.json<IExecution>(`executions/${part(executionId)}/cancel`, 'POST');
  }

  answerInput(executionId: string, value: string): Promise<unknown> {
    return this.json(`executions/${part(executionId)}/input`, 'POST', { value });
  }

  /** Return the session as a notebook, nbformat 4.5. */
  notebook(sessionId: string): Promise<{ cells: { cell_type: string; source: string | string[] }[] }> {
    return this.json(`sessions/${part(sessionId)}/notebook`);
  }

  /** Save the session as a notebook of the server's; the path is where it is. */
  async saveNotebook(sessionId: string, path: string): Promise<string> {
    return (await this.json<{ path: string }>(`sessions/${part(sessionId)}/notebook`, 'POST', { path })).path;
  }

  files(sessionId: string): Promise<IFileList> {
    return this.json<IFileList>(`sessions/${part(sessionId)}/files`);
  }

  file(sessionId: string, path: string): Promise<Blob> {
    return this._blob(filePath(sessionId, 'files', path));
  }

  /** Download a file if it has at most so many bytes; null if it has more. */
  async smallFile(sessionId: string, path: string, mostBytes: number): Promise<Blob | null> {
    const response = await this.request(filePath(sessionId, 'files', path), {});
    if (Number(response.headers.get('Content-Length')) > mostBytes) {
      await response.body?.cancel();
      return null;
    }
    return response.blob();
  }

  /** Read the texts of a file before and after it was changed; the server keeps those of small files for a time. */
  fileChange(sessionId: string, file: IFile): Promise<IFileChange> {
    const mtime = encodeURIComponent(file.mtime);
    return this.json<IFileChange>(`${filePath(sessionId, 'changes', file.path)}?mtime=${mtime}`);
  }

  /** Download an output that the cap left out of the record. */
  output(executionId: string, name: string): Promise<Blob> {
    return this._blob(`executions/${part(executionId)}/outputs/${part(name)}`);
  }

  async tokens(): Promise<readonly IToken[]> {
    return (await this.json<{ tokens: IToken[] }>('tokens')).tokens;
  }

  async grants(): Promise<readonly IGrant[]> {
    return (await this.json<{ grants: IGrant[] }>('grants')).grants;
  }

  /** List the executions that wait for a person. */
  async approvals(): Promise<readonly IExecution[]> {
    return (await this.json<{ executions: IExecution[] }>('approvals')).executions;
  }

  /**
   * Follow the change feed from `after` on; ends when the server or `signal` ends it.
   *
   * @param opened Called when the server has agreed: the first event may take its time.
   */
  async *feed(
    after: string | null,
    signal: AbortSignal,
    opened: () => void
  ): AsyncGenerator<{ id: string | null; event: FeedEvent }> {
    const headers = after === null ? undefined : { 'Last-Event-ID': after };
    for await (const frame of this._frames('events', signal, headers, opened)) {
      const data = JSON.parse(frame.data) as { message?: string };
      if (frame.event === 'failure') {
        throw new Error(data.message);
      }
      yield { id: frame.id, event: { ...data, type: frame.event } as FeedEvent };
    }
  }

  /** Follow an execution's event log from after `seq` on; it ends with an `end` event. */
  async *events(executionId: string, seq: number, signal: AbortSignal): AsyncGenerator<OutputEvent> {
    const path = `executions/${part(executionId)}/events?after=${seq}`;
    // Its last event would otherwise carry all outputs again.
    for await (const frame of this._frames(path, signal, { Prefer: 'return=minimal' })) {
      const data = JSON.parse(frame.data) as object;
      yield { seq, ...data, type: frame.event } as OutputEvent;
    }
  }

  /** Send JSON, if there is any, and return the JSON of the answer. */
  async json<T>(path: string, method = 'GET', body?: unknown): Promise<T> {
    const init: RequestInit = { method };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { 'Content-Type': JSON_TYPE };
    }
    const response = await this.request(path, init);
    return (await response.json()) as T;
  }

  /** Send a request below `exec/v1`; raises `ApiError` for whatever is no success. */
  async request(path: string, init: RequestInit): Promise<Response> {
    const url = `${URLExt.join(this.settings.baseUrl, 'exec/v1')}/${path}`;
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    if (!response.ok) {
      throw await errorOf(response);
    }
    return response;
  }

  private async _blob(path: string): Promise<Blob> {
    return (await this.request(path, {})).blob();
  }

  private async *_frames(
    path: string,
    signal: AbortSignal,
    headers?: { [name: string]: string },
    opened?: () => void
  ): AsyncGenerator<IFrame> {
    const aborting = new AbortController();
    const abort = (): void => aborting.abort();
    signal.addEventListener('abort', abort);
    let timer = window.setTimeout(abort, SILENCE_SECONDS * 1000);
    try {
      const response = await this.request(path, {
        headers: { ...headers, Accept: 'text/event-stream' },
        signal: aborting.signal
      });
      if (response.body === null || !response.headers.get('Content-Type')?.startsWith('text/event-stream')) {
        throw new ApiError(response.status, null, 'The server answered with something else than events.');
      }
      opened?.();
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      const parser = new FrameParser();
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) {
            return;
          }
          window.clearTimeout(timer);
          timer = window.setTimeout(abort, SILENCE_SECONDS * 1000);
          yield* parser.push(decoder.decode(value, { stream: true }));
        }
      } finally {
        await reader.cancel().catch(() => undefined); // it may have failed already; what counts is that it is closed
      }
    } finally {
      window.clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      aborting.abort();
    }
  }
}

function cursor(before: string | undefined): string {
  return before === undefined ? '' : `&before=${part(before)}`;
}

function filePath(sessionId: string, what: 'files' | 'changes', path: string): string {
  return `sessions/${part(sessionId)}/${what}/${path.split('/').map(part).join('/')}`;
}

function part(text: string): string {
  return encodeURIComponent(text);
}
