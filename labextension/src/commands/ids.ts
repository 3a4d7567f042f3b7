/** The commands, by which other extensions and assistants can do what the panel does. */

export const CommandIDs = {
  open: 'jupyter-exec-ext:open-panel',
  openView: 'jupyter-exec-ext:open-view',
  openAllView: 'jupyter-exec-ext:open-view-of-all',
  copyFile: 'jupyter-exec-ext:copy-file',
  help: 'jupyter-exec-ext:help',
  interrupt: 'jupyter-exec-ext:interrupt-session',
  restart: 'jupyter-exec-ext:restart-session',
  shutdown: 'jupyter-exec-ext:shutdown-session',
  interruptAll: 'jupyter-exec-ext:interrupt-all',
  shutdownAll: 'jupyter-exec-ext:shutdown-all',
  openConsole: 'jupyter-exec-ext:open-console',
  openNotebook: 'jupyter-exec-ext:open-notebook',
  copySession: 'jupyter-exec-ext:copy-session-code',
  showFiles: 'jupyter-exec-ext:show-files',
  downloadFile: 'jupyter-exec-ext:download-file',
  downloadOutput: 'jupyter-exec-ext:download-output',
  answerInput: 'jupyter-exec-ext:answer-input',
  showSession: 'jupyter-exec-ext:show-session',
  openPort: 'jupyter-exec-ext:open-port',
  closePort: 'jupyter-exec-ext:close-port',
  allowNetwork: 'jupyter-exec-ext:allow-network',
  askAgain: 'jupyter-exec-ext:ask-again',
  cancel: 'jupyter-exec-ext:cancel-execution',
  review: 'jupyter-exec-ext:review-approval',
  reject: 'jupyter-exec-ext:reject-execution',
  newToken: 'jupyter-exec-ext:new-token',
  copyCode: 'jupyter-exec-ext:copy-code',
  attach: 'jupyter-exec-ext:attach-kernel',
  stopSharing: 'jupyter-exec-ext:stop-sharing',
  reconnect: 'jupyter-exec-ext:reconnect'
} as const;

/** Of a session, in the order of its menu; a null is a line between two. */
export const SESSION_MENU: readonly (string | null)[] = [
  CommandIDs.openView,
  CommandIDs.openConsole,
  CommandIDs.openNotebook,
  CommandIDs.copySession,
  CommandIDs.showFiles,
  CommandIDs.askAgain,
  null,
  CommandIDs.interrupt,
  CommandIDs.restart,
  CommandIDs.shutdown
];
