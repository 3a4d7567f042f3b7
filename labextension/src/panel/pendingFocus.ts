/** Focus that waits for a row: the row opens and takes it as soon as it is there. */

import { Signal } from '@lumino/signaling';
import * as React from 'react';

/** One session at a time: another one takes its place. */
class PendingFocus {
  readonly changed = new Signal<PendingFocus, void>(this);

  get sessionId(): string | null {
    return this._sessionId;
  }

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

/** The field for the answer to code that asks for input. */
export const wantedAnswer = new PendingFocus();
/** The row of a session. */
export const wantedSession = new PendingFocus();

/** Call `act` with the session that is wanted, if there is one: at once, at each rendering, and when that changes. */
export function usePendingFocus(wanted: PendingFocus, act: (sessionId: string) => void): void {
  const latest = React.useRef(act);
  React.useEffect(() => {
    latest.current = act;
    if (wanted.sessionId !== null) {
      act(wanted.sessionId);
    }
  });
  React.useEffect(() => {
    const update = (): void => {
      if (wanted.sessionId !== null) {
        latest.current(wanted.sessionId);
      }
    };
    wanted.changed.connect(update);
    return () => {
      wanted.changed.disconnect(update);
    };
  }, [wanted]);
}
