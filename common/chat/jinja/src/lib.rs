//! A C interface of minijinja: compiles a chat template, and renders it as `transformers` does, within limits.
//! jinja.h describes the functions. No Rust type, panic or allocation crosses the interface.
mod bounds;
mod methods;
mod msgpack;
mod tojson;
mod weigh;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::os::raw::c_char;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use crate::bounds::{Bounds, Stop};

const TEMPLATE: &str = "chat";
/// How often the renders of a template may be stopped before it is given up.
const MOST_STOPS: u32 = 4;

/// The codes of jinja.h.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok = 0,
    Syntax = 1,
    Raised = 2,
    OutOfSteps = 3,
    TooDeep = 4,
    TooLong = 5,
    Failed = 6,
    BadInput = 7,
    Panicked = 8,
    OutOfMemory = 9,
    OutOfTime = 10,
    GivenUp = 11,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limits {
    steps: u64,
    depth: u64,
    output_bytes: u64,
    memory_bytes: u64,
    cpu_nanoseconds: u64,
}

/// Bytes that Rust allocated and tandem_jinja_free_text frees.
#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
    capacity: usize,
    line: u64,
}

/// Writes the time of a render as text, at most `capacity` bytes, and returns how many; or a number above `capacity` if it
/// does not fit.
pub type FormatTime =
    extern "C" fn(time: i64, format: *const c_char, format_size: usize, out: *mut c_char, capacity: usize) -> usize;

pub struct Template {
    environment: Environment<'static>,
    output_bytes: usize,
    format_time: FormatTime,
    bounds: Bounds,
    stops: AtomicU32,
}

/// The cause of an error that the template itself raised.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Raised {}

fn raise_exception(state: &State, message: Value) -> Result<Value, Error> {
    weigh::weigh(state, &message)?;
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The message and the line of an error, and what kind of failure it is.
struct Failure {
    outcome: Outcome,
    message: String,
    line: usize,
}

impl Failure {
    fn new(outcome: Outcome, message: impl Into<String>) -> Failure {
        Failure { outcome, message: message.into(), line: 0 }
    }
}

/// The innermost cause decides what kind of failure an error is: what a macro raised is wrapped by what called the macro.
fn failure_of(error: &Error) -> Failure {
    let mut failure = Failure {
        outcome: Outcome::Failed,
        message: describe(error),
        line: error.line().unwrap_or(0),
    };
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            failure.outcome = Outcome::Raised;
            failure.message = raised.0.clone();
        } else if let Some(inner) = current.downcast_ref::<Error>() {
            match inner.kind() {
                ErrorKind::OutOfFuel => failure.outcome = Outcome::OutOfSteps,
                ErrorKind::SyntaxError => failure.outcome = Outcome::Syntax,
                _ if inner.detail() == Some("recursion limit exceeded") => failure.outcome = Outcome::TooDeep,
                _ => {}
            }
            failure.line = inner.line().unwrap_or(failure.line);
            if failure.outcome != Outcome::Raised {
                failure.message = describe(inner);
            }
        }
        cause = current.source();
    }
    failure
}

fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), detail),
        None => error.kind().to_string(),
    }
}

fn make_environment(source: &str, limits: &Limits) -> Result<Environment<'static>, Failure> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| failure_of(&error))?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(limits.steps));
    environment.set_recursion_limit(usize::try_from(limits.depth).unwrap_or(usize::MAX));
    environment.set_unknown_method_callback(methods::unknown_method);
    environment.add_filter("tojson", tojson::tojson);
    weigh::guard(&mut environment);
    environment.add_function("raise_exception", raise_exception);
    environment
        .add_template_owned(TEMPLATE, source.to_owned())
        .map_err(|error| failure_of(&error))?;
    Ok(environment)
}

/// Keeps the output, and refuses more than so many bytes.
struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    most_bytes: usize,
    too_long: &'a mut bool,
}

impl io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most_bytes - self.bytes.len() {
            *self.too_long = true;
            return Err(io::Error::new(io::ErrorKind::Other, "the output is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// strftime_now of one render.
fn strftime_now(format_time: FormatTime, time: i64, format: &str) -> Result<String, Error> {
    let mut out = vec![0u8; 1024];
    let size = format_time(time, format.as_ptr().cast(), format.len(), out.as_mut_ptr().cast(), out.len());
    if size > out.len() {
        return Err(Error::new(ErrorKind::InvalidOperation, "the format of strftime_now is too long"));
    }
    out.truncate(size);
    String::from_utf8(out).map_err(|_| Error::new(ErrorKind::InvalidOperation, "strftime_now gave no UTF-8"))
}

fn render(template: &Template, variables: &[u8], time: i64) -> Result<Vec<u8>, Failure> {
    let variables = msgpack::decode_map(variables).map_err(|message| Failure::new(Outcome::BadInput, message))?;
    let format_time = template.format_time;
    let now = Value::from_function(move |format: String| strftime_now(format_time, time, &format));
    // Variables of the caller hide functions, as in transformers.
    let context = Value::from_pairs(std::iter::once((Value::from("strftime_now"), now)).chain(variables));
    let mut bytes = Vec::new();
    let mut too_long = false;
    let compiled = template.environment.get_template(TEMPLATE).map_err(|error| failure_of(&error))?;
    let output = Output { bytes: &mut bytes, most_bytes: template.output_bytes, too_long: &mut too_long };
    let result = compiled.render_captured_to(context, output).map(|_| ());
    match result {
        Ok(()) => Ok(bytes),
        Err(_) if too_long => Err(Failure::new(Outcome::TooLong, "the output is too long")),
        Err(error) => Err(failure_of(&error)),
    }
}

fn give(out: *mut Text, bytes: Vec<u8>, line: usize) {
    let mut bytes = std::mem::ManuallyDrop::new(bytes);
    let text = Text { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity(), line: line as u64 };
    // SAFETY: jinja.h wants `out` to be valid.
    unsafe { out.write(text) };
}

fn fail(out: *mut Text, failure: Failure) -> Outcome {
    give(out, failure.message.into_bytes(), failure.line);
    failure.outcome
}

/// Runs the engine within bounds.
fn bounded<T: Send + 'static>(
    bounds: Bounds,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    bounds::run(bounds, work).unwrap_or_else(|stop| {
        Err(match stop {
            Stop::Memory => Failure::new(Outcome::OutOfMemory, "too much memory"),
            Stop::Time => Failure::new(Outcome::OutOfTime, "too much time"),
            Stop::Panic => Failure::new(Outcome::Panicked, "the template engine failed"),
            Stop::NoThread => Failure::new(Outcome::Panicked, "there is no thread for the template engine"),
        })
    })
}

/// Stops of one template leave threads and memory behind.
fn render_bounded(template: &Arc<Template>, variables: Vec<u8>, time: i64) -> Result<Vec<u8>, Failure> {
    if template.stops.load(Ordering::Relaxed) >= MOST_STOPS {
        return Err(Failure::new(Outcome::GivenUp, "stopped too often"));
    }
    let shared = template.clone();
    let result = bounded(template.bounds, move || render(&shared, &variables, time));
    if let Err(Failure { outcome: Outcome::OutOfMemory | Outcome::OutOfTime, .. }) = result {
        template.stops.fetch_add(1, Ordering::Relaxed);
    }
    result
}

/// # Safety
/// `data` must be valid for `size` bytes, unless `size` is 0.
unsafe fn bytes_of<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// # Safety
/// See jinja.h.
#[no_mangle]
pub unsafe extern "C" fn tandem_jinja_compile(
    source: *const u8,
    size: usize,
    limits: *const Limits,
    format_time: FormatTime,
    template: *mut *const Template,
    message: *mut Text,
) -> Outcome {
    let (source, limits) = (bytes_of(source, size).to_vec(), *limits);
    let bounds = Bounds { memory_bytes: limits.memory_bytes, cpu_nanoseconds: limits.cpu_nanoseconds };
    let compiled = bounded(bounds, move || {
        let source = std::str::from_utf8(&source)
            .map_err(|_| Failure::new(Outcome::BadInput, "the template is not UTF-8"))?;
        let environment = make_environment(source, &limits)?;
        let output_bytes = usize::try_from(limits.output_bytes).unwrap_or(usize::MAX);
        Ok(Template { environment, output_bytes, format_time, bounds, stops: AtomicU32::new(0) })
    });
    match compiled {
        Ok(compiled) => {
            template.write(Arc::into_raw(Arc::new(compiled)));
            Outcome::Ok
        }
        Err(failure) => fail(message, failure),
    }
}

/// # Safety
/// See jinja.h.
#[no_mangle]
pub unsafe extern "C" fn tandem_jinja_render(
    template: *const Template,
    variables: *const u8,
    size: usize,
    time: i64,
    text: *mut Text,
) -> Outcome {
    Arc::increment_strong_count(template);
    let template = Arc::from_raw(template);
    match render_bounded(&template, bytes_of(variables, size).to_vec(), time) {
        Ok(bytes) => {
            give(text, bytes, 0);
            Outcome::Ok
        }
        Err(failure) => fail(text, failure),
    }
}

/// # Safety
/// See jinja.h.
#[no_mangle]
pub unsafe extern "C" fn tandem_jinja_free(template: *const Template) {
    drop(Arc::from_raw(template));
}

/// # Safety
/// See jinja.h.
#[no_mangle]
pub unsafe extern "C" fn tandem_jinja_free_text(text: *mut Text) {
    drop(Vec::from_raw_parts((*text).data, (*text).size, (*text).capacity));
}
