//! Runs the engine on threads of its own, with bounds for what its steps do not count (a few operators of minijinja work
//! without end on lists that hold other lists many times). Each thread has a large stack, because freeing a value takes as
//! many nested calls as the value is deep. Work that takes too much memory or processor time stops at its next allocation for
//! good: its thread sleeps, and its memory stays taken, since an allocation cannot be refused without ending the process.
//! Therefore a template that was stopped a few times is not used any more (lib.rs).
use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The memory is reserved and not taken.
const STACK_BYTES: usize = 512 << 20;
const MOST_IDLE_THREADS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Memory,
    Time,
    Panic,
    NoThread,
}

#[derive(Clone, Copy)]
pub struct Bounds {
    pub memory_bytes: u64,
    pub cpu_nanoseconds: u64,
}

/// Whether work has ended, and how.
#[derive(Default)]
struct Signal {
    ended: Mutex<Option<Result<(), Stop>>>,
    changed: Condvar,
}

impl Signal {
    /// Allocates nothing.
    fn set(&self, how: Result<(), Stop>) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<(), Stop> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(how) = *ended {
                return how;
            }
            ended = self.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What the work on this thread may still take.
struct Meter {
    bytes_left: Cell<i64>,
    allocations: Cell<u32>,
    cpu_deadline: u64,
    signal: Arc<Signal>,
}

thread_local! {
    static METER: Cell<*const Meter> = const { Cell::new(ptr::null()) };
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// The processor time of this thread.
fn cpu_nanoseconds() -> u64 {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the structure is that of 64-bit Linux.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

impl Meter {
    fn charge(&self, bytes: i64) {
        self.bytes_left.set(self.bytes_left.get() - bytes);
        self.allocations.set(self.allocations.get().wrapping_add(1));
        if self.bytes_left.get() < 0 {
            self.stop(Stop::Memory);
        }
        if self.allocations.get() % 4096 == 0 && cpu_nanoseconds() > self.cpu_deadline {
            self.stop(Stop::Time);
        }
    }

    fn stop(&self, why: Stop) -> ! {
        METER.with(|meter| meter.set(ptr::null()));
        self.signal.set(Err(why));
        loop {
            std::thread::park();
        }
    }
}

fn charge(bytes: i64) {
    METER.with(|meter| {
        // SAFETY: `execute` resets the pointer before the meter ends.
        if let Some(meter) = unsafe { meter.get().as_ref() } {
            meter.charge(bytes);
        }
    });
}

struct Metered;

// SAFETY: the system's allocator does the work. `charge` returns, or never returns.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size() as i64);
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size() as i64);
        System.alloc_zeroed(layout)
    }

    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        charge(size as i64 - layout.size() as i64);
        System.realloc(data, layout, size)
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        METER.with(|meter| {
            if let Some(meter) = meter.get().as_ref() {
                meter.bytes_left.set(meter.bytes_left.get() + layout.size() as i64);
            }
        });
        System.dealloc(data, layout);
    }
}

#[global_allocator]
static ALLOCATOR: Metered = Metered;

type Job = Box<dyn FnOnce() -> (Arc<Signal>, Result<(), Stop>) + Send>;

static IDLE: Mutex<Vec<Sender<Job>>> = Mutex::new(Vec::new());

/// A thread that waits for work, or a new one.
fn thread() -> Option<Sender<Job>> {
    if let Some(idle) = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
        return Some(idle);
    }
    let (sender, receiver) = channel::<Job>();
    let again = sender.clone();
    let builder = std::thread::Builder::new().name("jinja".to_owned()).stack_size(STACK_BYTES);
    let spawned = builder.spawn(move || {
        while let Ok(job) = receiver.recv() {
            let (signal, how) = job();
            let kept = {
                let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
                let kept = idle.len() < MOST_IDLE_THREADS;
                if kept {
                    idle.push(again.clone());
                }
                kept
            };
            signal.set(how);
            if !kept {
                break;
            }
        }
    });
    spawned.ok().map(|_| sender)
}

fn execute<T>(bounds: Bounds, signal: &Arc<Signal>, work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let meter = Meter {
        bytes_left: Cell::new(i64::try_from(bounds.memory_bytes).unwrap_or(i64::MAX)),
        allocations: Cell::new(0),
        cpu_deadline: cpu_nanoseconds().saturating_add(bounds.cpu_nanoseconds),
        signal: signal.clone(),
    };
    METER.with(|slot| slot.set(&meter));
    let result = catch_unwind(AssertUnwindSafe(work));
    METER.with(|slot| slot.set(ptr::null()));
    result
}

/// Returns what the work returns, or why it did not end.
pub fn run<T: Send + 'static>(bounds: Bounds, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stop> {
    let signal = Arc::new(Signal::default());
    let place = Arc::new(Mutex::new(None));
    let thread = thread().ok_or(Stop::NoThread)?;
    let job: Job = {
        let (signal, place) = (signal.clone(), place.clone());
        Box::new(move || {
            let result = execute(bounds, &signal, work);
            let how = if result.is_ok() { Ok(()) } else { Err(Stop::Panic) };
            *place.lock().unwrap_or_else(PoisonError::into_inner) = result.ok();
            drop(place);
            (signal, how)
        })
    };
    thread.send(job).map_err(|_| Stop::NoThread)?;
    signal.wait()?;
    let result = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    result.ok_or(Stop::Panic)
}
