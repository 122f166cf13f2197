//! Bounds what minijinja does not charge for: a list that holds another list twice, and so on, is small in memory and has no
//! end when it is printed or compared. Before that happens, `weigh` walks it and pays for each item, and so runs out of steps.
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{escape_formatter, filters, Environment, Error, ErrorKind, Output, State};

/// A visit takes as long as a few instructions.
const ITEM_STEPS: u64 = 4;
/// Deeper values would take as many nested calls. Variables are nested less.
const MOST_DEPTH: usize = 1000;

pub fn weigh(state: &State, value: &Value) -> Result<(), Error> {
    weigh_at(state, value, 0)
}

fn weigh_at(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MOST_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
    }
    match value.kind() {
        ValueKind::String => state.consume_fuel((value.as_str().unwrap_or_default().len() / 64) as u64),
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()?.checked() {
                state.consume_fuel(ITEM_STEPS)?;
                weigh_at(state, &item?, depth + 1)?;
            }
            Ok(())
        }
        ValueKind::Map => {
            for key in value.try_iter()?.checked() {
                state.consume_fuel(ITEM_STEPS)?;
                weigh_at(state, &value.get_item(&key?)?, depth + 1)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn format_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() != ValueKind::String {
        weigh(state, value)?;
    }
    escape_formatter(out, state, value)
}

/// Puts `weigh` before the printing of a value, and before filters that print or compare their arguments.
pub fn guard(environment: &mut Environment) {
    environment.set_formatter(format_value);
    environment.add_filter("unweighed join", filters::join);
    environment.add_filter("unweighed max", filters::max);
    environment.add_filter("unweighed min", filters::min);
    environment.add_filter("unweighed sort", filters::sort);
    environment.add_filter("unweighed string", filters::string);
    environment.add_filter("unweighed unique", filters::unique);
    for name in ["join", "max", "min", "sort", "string", "unique"] {
        let unweighed = format!("unweighed {name}");
        environment.add_filter(name, move |state: &mut State, args: Rest<Value>| -> Result<Value, Error> {
            for value in args.iter() {
                weigh(state, value)?;
            }
            state.apply_filter(&unweighed, &args)
        });
    }
}
