/** Row of a list, whose buttons are drawn only while the mouse or the focus is on it. */

import * as React from 'react';

export function Row(props: {
  main: React.ReactElement;
  actions: () => React.ReactElement;
  onContextMenu?: (event: React.MouseEvent<HTMLDivElement>) => void;
}): React.ReactElement {
  const [hovered, setHovered] = React.useState(false);
  const [focused, setFocused] = React.useState(false);
  return (
    <div
      className="jex-Row"
      onContextMenu={props.onContextMenu}
      onMouseEnter={() => setHovered(true)}
      onMouseLeave={() => setHovered(false)}
      onFocus={() => setFocused(true)}
      onBlur={event =>
        // A dialog or a menu gives the focus back to the button that has opened it.
        setFocused(event.currentTarget.contains(event.relatedTarget) || isPassing(event.relatedTarget))
      }
    >
      {props.main}
      {(hovered || focused) && <span className="jex-Row-actions">{props.actions()}</span>}
    </div>
  );
}

function isPassing(to: EventTarget | null): boolean {
  return to instanceof Element && to.closest('.jp-Dialog, .lm-Menu') !== null;
}
