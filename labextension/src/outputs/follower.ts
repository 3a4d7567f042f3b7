/** Follows the outputs of one execution while somebody looks at it. */

import type { ExecClient } from '../api/client';
import { ApiError, messageOf } from '../api/errors';
import type { OutputEvent } from '../api/types';
import { delaySeconds } from '../model/backoff';
import { fold, type IOutputs, NO_OUTPUTS, ofRecord } from './fold';

/** Output is shown this often, however often it comes. */
const SHOW_SECONDS = 0.1;

export interface IFollowed {
  readonly outputs: IOutputs;
  /** Why there are none, or no more; null if all is well. */
  readonly problem: string | null;
  /** True while the highest number of other runs is followed. */
  readonly waiting?: boolean;
}

export const NOTHING_YET: IFollowed = { outputs: NO_OUTPUTS, problem: null };

/** Connections that stay open, for all followers: a browser has six, and the rest of the page needs some. */
export class Slots {
  constructor(private _free: number) {}

  /** @param waits Called when the work has to wait. */
  async run<T>(signal: AbortSignal, waits: () => void, work: () => Promise<T>): Promise<T | undefined> {
    while (this._free === 0 && !signal.aborted) {
      waits();
      await new Promise<void>(resolve => {
        this._waiting.add(resolve);
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
    if (signal.aborted) {
      return undefined;
    }
    this._free -= 1;
    try {
      return await work();
    } finally {
      this._free += 1;
      const waiting = [...this._waiting];
      this._waiting.clear();
      waiting.forEach(resolve => resolve());
    }
  }

  private readonly _waiting = new Set<() => void>();
}

/** The server has as many streams of this person's as it allows. */
const TOO_MANY = 429;

const SLOTS = new Slots(3);
const BRIEF_SLOTS = new Slots(1);

/**
 * Call `show` with what there is, again and again, until the execution's end or the signal's.
 *
 * @param lasting Whether it still runs: what has ended is read in a moment, and waits for nothing that lasts.
 */
export async function follow(
  client: ExecClient,
  executionId: string,
  lasting: boolean,
  signal: AbortSignal,
  show: (followed: IFollowed) => void
): Promise<void> {
  const slots = lasting ? SLOTS : BRIEF_SLOTS;
  let outputs = NO_OUTPUTS;
  for (let attempt = 1; !signal.aborted && outputs.end === null; attempt += 1) {
    let pending: OutputEvent[] = [];
    let timer: number | undefined;
    const flush = (): void => {
      window.clearTimeout(timer);
      timer = undefined;
      outputs = fold(outputs, pending);
      pending = [];
      if (!signal.aborted) {
        show({ outputs, problem: null });
      }
    };
    try {
      const waits = (): void => show({ outputs, problem: null, waiting: lasting });
      await slots.run(signal, waits, async () => {
        for await (const event of client.events(executionId, outputs.seq, signal)) {
          if (event.type === 'failure') {
            throw new Error(event.message);
          }
          attempt = 1;
          pending.push(event);
          // Folded in between as well, so that what waits to be shown is bounded, too.
          outputs = pending.length >= 64 ? fold(outputs, pending.splice(0)) : outputs;
          timer ??= window.setTimeout(flush, SHOW_SECONDS * 1000);
          if (event.type === 'end') {
            return;
          }
        }
      });
      flush();
    } catch (error) {
      flush();
      if (signal.aborted) {
        return;
      }
      if (error instanceof ApiError && error.status < 500 && error.status !== TOO_MANY) {
        show(await fromRecord(client, executionId, outputs, error));
        return;
      }
      show({ outputs, problem: messageOf(error) });
    }
    if (outputs.end === null && !signal.aborted) {
      await new Promise(resolve => window.setTimeout(resolve, delaySeconds(attempt, Math.random()) * 1000));
    }
  }
}

/** A log is kept for a time; the record longer. */
async function fromRecord(
  client: ExecClient,
  executionId: string,
  outputs: IOutputs,
  error: ApiError
): Promise<IFollowed> {
  if (error.code !== 'log_expired') {
    return { outputs, problem: error.message };
  }
  try {
    const record = await client.execution(executionId);
    return { outputs: ofRecord(record, record.outputs), problem: null };
  } catch (again) {
    return { outputs, problem: messageOf(again) };
  }
}
