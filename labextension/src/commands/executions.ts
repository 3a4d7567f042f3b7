/** Commands on an execution, and on files and outputs. */

import { Notification } from '@jupyterlab/apputils';

import { CODE_ARGS, EXECUTION_ARGS, FILE_ARGS, OUTPUT_ARGS, text } from './args';
import type { ICommandContext } from './context';
import { copy } from './copy';
import { saveBlob } from './download';
import { CommandIDs } from './ids';

export function addExecutionCommands(context: ICommandContext): void {
  const { commands, model, trans, attempt } = context;

  commands.addCommand(CommandIDs.cancel, {
    label: trans.__('Cancel Run'),
    describedBy: EXECUTION_ARGS,
    execute: args => attempt(model.client.cancel(text(args, 'executionId')))
  });

  commands.addCommand(CommandIDs.copyCode, {
    label: trans.__('Copy Code'),
    describedBy: CODE_ARGS,
    execute: async args => {
      await copy(text(args, 'code'));
      Notification.info(trans.__('The code was copied.'), { autoClose: 2000 });
    }
  });

  commands.addCommand(CommandIDs.downloadFile, {
    label: trans.__('Download File'),
    describedBy: FILE_ARGS,
    execute: async args => {
      const path = text(args, 'path');
      const content = await attempt(model.client.file(text(args, 'sessionId'), path));
      return content && saveBlob(content, path);
    }
  });

  commands.addCommand(CommandIDs.downloadOutput, {
    label: trans.__('Download Output'),
    describedBy: OUTPUT_ARGS,
    execute: async args => {
      const [id, name] = [text(args, 'executionId'), text(args, 'name')];
      const content = await attempt(output(context, id, name));
      return content && saveBlob(content, name.includes('.') ? name : `${name}.txt`);
    }
  });
}

/** A stream of which nothing was left out is in the record, and in no file. */
async function output({ model }: ICommandContext, executionId: string, name: string): Promise<Blob> {
  const record = await model.client.execution(executionId);
  const spooled = record.truncated?.spooled.some(each => each.name === name) ?? false;
  if (!spooled && (name === 'stdout' || name === 'stderr')) {
    return new Blob([record[name]], { type: 'text/plain' });
  }
  return model.client.output(executionId, name);
}
