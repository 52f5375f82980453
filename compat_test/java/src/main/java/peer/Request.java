package peer;

import java.util.concurrent.Future;

/** One request in flight, and what cancelling it means. */
final class Request {

    private Thread thread;
    private Future<?> future;
    private boolean cancelled;

    synchronized void begin() throws InterruptedException {
        if (cancelled) {
            throw new InterruptedException("cancelled before it began");
        }
        thread = Thread.currentThread();
    }

    /** Takes the future of an Async operation: from now on cancel means to cancel that, not to interrupt. */
    synchronized <T> Future<T> watch(Future<T> future) {
        this.future = future;
        if (cancelled) {
            future.cancel(true);
        }
        return future;
    }

    /** Answers false when the operation has ended already. */
    synchronized boolean cancel() {
        if (future != null) {
            cancelled = future.cancel(true);
            return cancelled;
        }
        cancelled = true;
        if (thread != null) {
            thread.interrupt();
        }
        return true;
    }

    /** Clears the interrupt of a cancel that came too late, so that the pool's thread is clean. */
    synchronized void end() {
        thread = null;
        Thread.interrupted();
    }
}
