import { addGeneralCommands } from './general';
import { addCheckpointCommands } from './checkpoints';
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
  addCheckpointCommands(context);
  addPortCommands(context);
  addNetworkCommand(context);
  addExecutionCommands(context);
  addCopyFileCommand(context);
}
