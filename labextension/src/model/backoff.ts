/** Pauses between attempts: twice as long each time, and by chance, so that pages do not come at once. Pure. */

const FIRST_SECONDS = 0.5;
/** A page is back within 5 s of its server: one pause, and the requests after it. */
const MOST_SECONDS = 4;
/** A restart is over after so many attempts, which take ten minutes; a person who comes back hurries the next one. */
const MANY_ATTEMPTS = 200;
const MOST_SECONDS_AFTER_MANY = 30;
/** For what only a restart of the server ends. */
const RESTART_SECONDS = 60;

/**
 * @param attempt How many have failed in a row, from 1 on.
 * @param random Between 0 and 1.
 */
export function delaySeconds(attempt: number, random: number): number {
  const most = attempt > MANY_ATTEMPTS ? MOST_SECONDS_AFTER_MANY : MOST_SECONDS;
  return spread(Math.min(most, FIRST_SECONDS * 2 ** Math.min(attempt - 1, 16)), random);
}

/** How long to wait for a restart of the server, however many attempts have failed. */
export function restartDelaySeconds(random: number): number {
  return spread(RESTART_SECONDS, random);
}

function spread(most: number, random: number): number {
  return most * (0.5 + random / 2);
}
