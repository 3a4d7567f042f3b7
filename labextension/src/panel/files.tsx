/** The files that an execution made or changed. */

import { downloadIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IExecution } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { oneLine } from '../safety/text';
import { useServices } from './services';
import { sizeWords } from '../words';

const SHOWN = 20;

export function FileLinks(props: { execution: IExecution }): React.ReactElement | null {
  const { commands, trans } = useServices();
  const { files, files_omitted: omitted, session_id: sessionId } = props.execution;
  if (files.length === 0) {
    return null;
  }
  const more = omitted + Math.max(0, files.length - SHOWN);
  return (
    <ul className="jex-Files" aria-label={trans.__('Files')}>
      {files.slice(0, SHOWN).map(file => (
        <li key={file.path}>
          <button
            className="jex-File"
            title={trans.__('Download %1', oneLine(file.path, 500))}
            onClick={() => void commands.execute(CommandIDs.downloadFile, { sessionId, path: file.path })}
          >
            <downloadIcon.react tag="span" className="jex-File-icon" />
            <span className="jex-Ellipsis">{oneLine(file.path)}</span>
            <span className="jex-Age">{sizeWords(file.size_bytes)}</span>
          </button>
        </li>
      ))}
      {more > 0 && (
        <li>
          <button
            className="jex-Link"
            onClick={() => void commands.execute(CommandIDs.showFiles, { sessionId })}
          >
            {trans._n('One more file', '%1 more files', more)}
          </button>
        </li>
      )}
    </ul>
  );
}
