/** Opens the rows of code that asks for input, and focuses the field for the answer. */

import { Signal } from '@lumino/signaling';

/** One at a time: another session that is wanted takes its place. */
class WantedAnswer {
  readonly changed = new Signal<WantedAnswer, void>(this);

  isWanted(sessionId: string): boolean {
    return this._sessionId === sessionId;
  }

  want(sessionId: string): void {
    this._sessionId = sessionId;
    this.changed.emit();
  }

  /** Return whether it is wanted, once. */
  take(sessionId: string): boolean {
    const wanted = this.isWanted(sessionId);
    this._sessionId = wanted ? null : this._sessionId;
    return wanted;
  }

  private _sessionId: string | null = null;
}

export const wantedAnswer = new WantedAnswer();
