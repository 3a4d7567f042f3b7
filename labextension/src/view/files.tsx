/** Files that an execution made or changed: their changes, a preview, and a copy. */

import { caretDownIcon, caretRightIcon, copyIcon, downloadIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ApiError, messageOf } from '../api/errors';
import type { IExecution, IFile, IFileChange } from '../api/types';
import { Changes } from '../approvals/changes';
import { CommandIDs } from '../commands/ids';
import { chosen } from '../outputs/renderers';
import { IconButton } from '../panel/button';
import { Code } from '../panel/code';
import { Rendered } from '../panel/outputs';
import { useServices } from '../panel/services';
import { sizeWords } from '../words';
import { oneLine } from '../safety/text';
import { type IPreview, maxPreviewBytes, previewOf } from './preview';

const SHOWN = 50;

export function ChangedFiles({ execution }: { execution: IExecution }): React.ReactElement | null {
  const { trans } = useServices();
  const { files, files_omitted: omitted, session_id: sessionId } = execution;
  const more = omitted + Math.max(0, files.length - SHOWN);
  return files.length === 0 ? null : (
    <ul className="jex-Files" aria-label={trans.__('Files')}>
      {files.slice(0, SHOWN).map(file => (
        <FileEntry key={file.path} file={file} sessionId={sessionId} />
      ))}
      {more > 0 && <li className="jex-Note">{trans._n('One more file', '%1 more files', more)}</li>}
    </ul>
  );
}

function FileEntry({ file, sessionId }: { file: IFile; sessionId: string }): React.ReactElement {
  const { commands, trans } = useServices();
  const [open, setOpen] = React.useState(false);
  const Caret = open ? caretDownIcon : caretRightIcon;
  const name = oneLine(file.path);
  const args = { sessionId, path: file.path };
  return (
    <li>
      <div className="jex-FileEntry">
        <button className="jex-File" aria-expanded={open} onClick={() => setOpen(!open)}>
          <Caret.react tag="span" className="jex-Caret" />
          <span className="jex-Ellipsis">{name}</span>
          <span className="jex-Age">{sizeWords(file.size_bytes)}</span>
        </button>
        <IconButton
          icon={copyIcon}
          label={trans.__('Copy %1 to my folder', name)}
          onClick={() => void commands.execute(CommandIDs.copyFile, args)}
        />
        <IconButton
          icon={downloadIcon}
          label={trans.__('Download %1', name)}
          onClick={() => void commands.execute(CommandIDs.downloadFile, args)}
        />
      </div>
      {open && <FileContent file={file} sessionId={sessionId} />}
    </li>
  );
}

interface IContent {
  /** Null if the server does not keep the texts of the change. */
  readonly change: IFileChange | null;
  /** Null while nobody has asked for it. */
  readonly preview: IPreview | null;
  readonly problem: string | null;
}

function FileContent({ file, sessionId }: { file: IFile; sessionId: string }): React.ReactElement {
  const { model, trans, languages } = useServices();
  const [content, setContent] = React.useState<IContent | null>(null);
  const [whole, setWhole] = React.useState(false);
  React.useEffect(() => {
    let wanted = true;
    void load().then(loaded => wanted && setContent(loaded));
    return () => {
      wanted = false;
    };

    async function load(): Promise<IContent> {
      try {
        const change = await model.client.fileChange(sessionId, file).catch(unlessNotKept);
        if (change !== null) {
          return { change, preview: { kind: 'text', text: change.after }, problem: null };
        }
        const most = maxPreviewBytes(file.mime_type);
        const blob = await model.client.smallFile(sessionId, file.path, most);
        const preview: IPreview = blob === null ? { kind: 'none' } : await previewOf(blob, file.mime_type);
        return { change, preview, problem: null };
      } catch (error) {
        return { change: null, preview: null, problem: messageOf(error) };
      }
    }
  }, [model, sessionId, file]);

  if (content === null) {
    return <p className="jex-Note">{trans.__('Loading…')}</p>;
  }
  const { change, preview, problem } = content;
  const before = change?.before ?? null;
  const language = languages?.findByFileName(file.path)?.name ?? 'none';
  return (
    <div className="jex-FileContent">
      {problem !== null && (
        <p className="jex-Note" role="alert">
          {oneLine(problem, 500)}
        </p>
      )}
      {change !== null && before !== null && (
        <p className="jex-Note">
          <button className="jex-Link" onClick={() => setWhole(!whole)}>
            {whole ? trans.__('Show what has changed') : trans.__('Show the whole file')}
          </button>
        </p>
      )}
      {change === null && preview !== null && preview.kind !== 'none' && (
        <p className="jex-Note">{trans.__('As it is now:')}</p>
      )}
      {change !== null && before !== null && !whole ? (
        <Changes before={before} after={change.after} label={trans.__('Changes in %1', oneLine(file.path))} />
      ) : preview?.kind === 'text' ? (
        <Code code={preview.text} language={language} />
      ) : preview?.kind === 'picture' ? (
        <Rendered shown={chosen(preview.data)} label={oneLine(file.path)} />
      ) : (
        problem === null && (
          <p className="jex-Note">
            {trans.__('No preview: the file is not text or a picture, or it is too large.')}
          </p>
        )
      )}
    </div>
  );
}

function unlessNotKept(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) {
    return null;
  }
  throw error;
}
