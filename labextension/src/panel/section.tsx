/** Interface of the panel's sections, and the widget and toolbar that they share. */

import { CommandToolbarButton, ReactWidget, Toolbar } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { type IServices, ServicesContext } from './services';

/** A section of the panel; `sections.ts` lists them in their order. */
export interface ISection {
  /** Of the widget's node. */
  readonly id: string;
  title(trans: TranslationBundle): string;
  /** True leaves it closed until a person opens it; a function is called when the panel is made. */
  readonly collapsed?: boolean | ((services: IServices) => boolean);
  create(services: IServices): Toolbar.IWidgetToolbar;
}

/** Return a toolbar of icons for the title of a section. */
export function commandToolbar(commands: CommandRegistry, ids: readonly string[]): Toolbar {
  const toolbar = new Toolbar();
  for (const id of ids) {
    toolbar.addItem(id, new CommandToolbarButton({ commands, id, label: '', caption: commands.label(id) }));
  }
  return toolbar;
}

/** A section that React draws. */
export class SectionWidget extends ReactWidget implements Toolbar.IWidgetToolbar {
  constructor(
    section: Pick<ISection, 'id' | 'title'>,
    private readonly _services: IServices,
    private readonly _content: React.ReactElement,
    readonly toolbar?: Toolbar
  ) {
    super();
    this.id = section.id;
    this.title.label = section.title(_services.trans);
    this.addClass('jex-Section');
  }

  protected render(): React.ReactElement {
    return <ServicesContext.Provider value={this._services}>{this._content}</ServicesContext.Provider>;
  }
}
