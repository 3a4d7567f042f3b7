export { ApprovalNotifier } from './notifier';
export { addRejectCommand } from './reject';
