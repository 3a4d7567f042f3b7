/** A button that is an icon; its label is for those who do not see it, and for the mouse. */

import type { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

export function IconButton(props: {
  icon: LabIcon;
  label: string;
  /** True if it opens a menu. */
  popup?: boolean;
  onClick: (event: React.MouseEvent<HTMLButtonElement>) => void;
}): React.ReactElement {
  return (
    <button
      className="jex-IconButton"
      title={props.label}
      aria-label={props.label}
      aria-haspopup={props.popup ? 'menu' : undefined}
      onClick={props.onClick}
    >
      <props.icon.react tag="span" />
    </button>
  );
}
