/** Switch: a state that is on or off, shared by a widget and commands, and there before the widget is. */

import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

export class Switch {
  get on(): boolean {
    return this._on;
  }

  get changed(): ISignal<Switch, void> {
    return this._changed;
  }

  set(on: boolean): void {
    if (on !== this._on) {
      this._on = on;
      this._changed.emit();
    }
  }

  private _on = false;
  private readonly _changed = new Signal<this, void>(this);
}

/** Return the state of the switch, and render anew whenever it changes. */
export function useSwitch(each: Switch): boolean {
  const [on, setOn] = React.useState(each.on);
  React.useEffect(() => {
    const update = (): void => setOn(each.on);
    update();
    each.changed.connect(update);
    return () => {
      each.changed.disconnect(update);
    };
  }, [each]);
  return on;
}
