import { addGeneralCommands } from './attach';
import type { ICommandContext } from './context';
import { addCopyFileCommand } from './copyFile';
import { addExecutionCommands } from './executions';
import { addNetworkCommand } from './network';
import { addPortCommands } from './ports';
import { addSessionCommands } from './sessions';

export { attempt, kernelIdOf } from './context';

export function addCommands(context: ICommandContext): void {
  addGeneralCommands(context);
  addSessionCommands(context);
  addPortCommands(context);
  addNetworkCommand(context);
  addExecutionCommands(context);
  addCopyFileCommand(context);
}
