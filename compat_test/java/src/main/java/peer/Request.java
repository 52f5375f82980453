package peer;

import java.util.concurrent.Future;

/** A request in flight, which can be cancelled. */
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

    /** Sets the future of an Async operation: from now on cancel cancels it, and no longer interrupts the thread. */
    synchronized <T> Future<T> watch(Future<T> future) {
        this.future = future;
        if (cancelled) {
            future.cancel(true);
        }
        return future;
    }

    /** Returns false if the operation has already ended. */
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
