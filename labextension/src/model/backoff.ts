/** How long to wait before the next attempt: twice as long each time, and by chance, so that pages do not come at once. */

const FIRST_SECONDS = 0.5;
const MOST_SECONDS = 30;
/** For what only a restart of the server ends. */
const RESTART_SECONDS = 60;

/**
 * @param attempt How many have failed in a row, from 1 on.
 * @param random Between 0 and 1.
 */
export function delaySeconds(attempt: number, random: number): number {
  const most = Math.min(MOST_SECONDS, FIRST_SECONDS * 2 ** Math.min(attempt - 1, 16));
  return spread(most, random);
}

/** How long to wait for a restart of the server, however many attempts have failed. */
export function restartDelaySeconds(random: number): number {
  return spread(RESTART_SECONDS, random);
}

function spread(most: number, random: number): number {
  return most * (0.5 + random / 2);
}
