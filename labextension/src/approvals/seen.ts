/** Executions whose code is or was on the screen: no notification tells of them. */

import { Signal } from '@lumino/signaling';

/** The oldest ones are forgotten. */
const MAX_IDS = 300;

class SeenCode {
  readonly changed = new Signal<SeenCode, void>(this);

  has(executionId: string): boolean {
    return this._ids.has(executionId);
  }

  add(executionId: string): void {
    if (this.has(executionId)) {
      return;
    }
    this._ids.add(executionId);
    const [oldest] = this._ids;
    if (this._ids.size > MAX_IDS && oldest !== undefined) {
      this._ids.delete(oldest);
    }
    this.changed.emit();
  }

  private readonly _ids = new Set<string>();
}

export const seenCode = new SeenCode();
