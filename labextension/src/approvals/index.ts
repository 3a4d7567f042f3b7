export { notifyOfWaiting } from './notifier';
export { addRejectCommand } from './reject';
