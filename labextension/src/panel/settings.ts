/** The settings of `schema/plugin.json`. */

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { Order } from '../model/view';

export interface ISettings {
  /** True shows sessions that have ended when the panel opens. */
  readonly showEnded: boolean;
  /** True shows a session's newest execution with its output. */
  readonly expandNewest: boolean;
  /** In which order sessions are shown when the panel opens. */
  readonly order: Order;
  readonly changed: ISignal<ISettings, void>;
}

/** The user's settings, or their defaults where nothing keeps settings. */
export class PanelSettings implements ISettings {
  get showEnded(): boolean {
    return this._value('showEnded', false);
  }

  get expandNewest(): boolean {
    return this._value('expandNewest', true);
  }

  get order(): Order {
    const value = this._settings?.composite.order;
    return value === 'newest' || value === 'name' ? value : 'busy';
  }

  get changed(): ISignal<ISettings, void> {
    return this._changed;
  }

  use(settings: ISettingRegistry.ISettings): void {
    this._settings = settings;
    settings.changed.connect(() => this._changed.emit(), this);
    this._changed.emit();
  }

  private _value(name: string, otherwise: boolean): boolean {
    const value = this._settings?.composite[name];
    return typeof value === 'boolean' ? value : otherwise;
  }

  private _settings: ISettingRegistry.ISettings | null = null;
  private readonly _changed = new Signal<this, void>(this);
}
