/** A row whose buttons are there while the mouse or the focus is: of hundreds of rows, one has them. */

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
      onBlur={event => setFocused(event.currentTarget.contains(event.relatedTarget))}
    >
      {props.main}
      {(hovered || focused) && <span className="jex-Row-actions">{props.actions()}</span>}
    </div>
  );
}
