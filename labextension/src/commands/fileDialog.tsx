/** The files of a session, to be downloaded. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import type { IFileList } from '../api/types';
import { sizeWords } from '../words';
import { oneLine } from '../safety/text';
import type { ICommandContext } from './context';
import { CommandIDs } from './ids';

const SHOWN = 500;

export async function fileDialog(
  context: ICommandContext,
  sessionId: string,
  list: IFileList
): Promise<void> {
  const { commands, trans } = context;
  const { files } = list;
  const body = (
    <div className="jex-FileDialog">
      {files.length === 0 && <p>{trans.__('The session has no files.')}</p>}
      <ul className="jex-Files">
        {files.slice(0, SHOWN).map(file => (
          <li key={file.path}>
            <button
              className="jex-File"
              title={trans.__('Download %1', oneLine(file.path, 500))}
              onClick={() => void commands.execute(CommandIDs.downloadFile, { sessionId, path: file.path })}
            >
              <span className="jex-Ellipsis">{oneLine(file.path)}</span>
              <span className="jex-Age">{sizeWords(file.size_bytes)}</span>
            </button>
          </li>
        ))}
      </ul>
      {(files.length > SHOWN || list.truncated) && (
        <p>{trans.__('There are more files than are shown here.')}</p>
      )}
    </div>
  );
  await showDialog({
    title: trans.__('Files of the session'),
    body,
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}
