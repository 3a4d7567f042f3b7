/** Services that the parts of the panel share. */

import type { IEditorServices } from '@jupyterlab/codeeditor';
import type { IEditorLanguageRegistry } from '@jupyterlab/codemirror';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import type { IExecution } from '../api/types';
import type { IExecState } from '../model/state';
import type { IExecModel } from '../tokens';
import type { ISettings } from './settings';

export interface IServices {
  readonly model: IExecModel;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
  readonly settings: ISettings;
  /** Strict ones, from `outputs/renderers`. */
  readonly renderers: IRenderMimeRegistry;
  /** Null where nothing highlights code. */
  readonly languages: IEditorLanguageRegistry | null;
  /** Null where there are no editors. */
  readonly editors: IEditorServices | null;
  /** Shows the files of an execution, where there is room for more than their names. */
  readonly Files?: React.ComponentType<{ execution: IExecution }>;
  /** Show what can be done with a session. */
  readonly openMenu: (sessionId: string, x: number, y: number) => void;
}

export const ServicesContext = React.createContext<IServices | null>(null);

export function useServices(): IServices {
  const services = React.useContext(ServicesContext);
  if (services === null) {
    throw new Error('There is no ServicesContext above this component.');
  }
  return services;
}

/** The model's state, and a new rendering with each new one. */
export function useExecState(): IExecState {
  const { model } = useServices();
  const [state, setState] = React.useState(model.state);
  React.useEffect(() => {
    const update = (): void => setState(model.state);
    update();
    model.changed.connect(update);
    return () => {
      model.changed.disconnect(update);
    };
  }, [model]);
  return state;
}

/** The time, in milliseconds, and a new rendering every so often while `running`. */
export function useNow(everySeconds: number, running = true): number {
  const [now, setNow] = React.useState(Date.now());
  React.useEffect(() => {
    if (!running) {
      return undefined;
    }
    setNow(Date.now());
    const timer = window.setInterval(() => setNow(Date.now()), everySeconds * 1000);
    return () => window.clearInterval(timer);
  }, [everySeconds, running]);
  return now;
}
