//! Methods of Python's types. minijinja-contrib has most of those that chat templates use, and these are others.
use minijinja::value::{from_args, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use crate::weigh::weigh;

pub fn unknown_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    for argument in args {
        weigh(state, argument)?;
    }
    if let (ValueKind::String, Some(text)) = (value.kind(), value.as_str()) {
        if let Some(result) = text_method(state, text, method, args) {
            return result;
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// None: contrib has the method, or nobody.
fn text_method(state: &State, text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    // minijinja charges for the result. What a method reads costs the same.
    if let Err(error) = state.consume_fuel((text.len() / 64) as u64) {
        return Some(Err(error));
    }
    Some(match method {
        "removeprefix" => from_args(args).map(|(prefix,): (&str,)| text.strip_prefix(prefix).unwrap_or(text).into()),
        "removesuffix" => from_args(args).map(|(suffix,): (&str,)| text.strip_suffix(suffix).unwrap_or(text).into()),
        "partition" => from_args(args).map(|(mark,): (&str,)| match text.split_once(mark) {
            Some((left, right)) => triple(left, mark, right),
            None => triple(text, "", ""),
        }),
        "rpartition" => from_args(args).map(|(mark,): (&str,)| match text.rsplit_once(mark) {
            Some((left, right)) => triple(left, mark, right),
            None => triple("", "", text),
        }),
        "rsplit" => rsplit(text, args),
        "casefold" => from_args(args).map(|()| text.to_lowercase().into()),
        "index" => from_args(args).and_then(|(part,): (&str,)| match text.find(part) {
            Some(offset) => Ok(text[..offset].chars().count().into()),
            None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
        }),
        _ => return None,
    })
}

fn triple(left: &str, mark: &str, right: &str) -> Value {
    Value::from(Tuple::from([Value::from(left), Value::from(mark), Value::from(right)]))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (mark, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most = most.and_then(|most| usize::try_from(most).ok());
    let mut parts: Vec<&str> = match (mark, most) {
        (Some(""), _) => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        (Some(mark), Some(most)) => text.rsplitn(most.saturating_add(1), mark).collect(),
        (Some(mark), None) => text.rsplit(mark).collect(),
        (None, most) => words_from_the_end(text, most.unwrap_or(usize::MAX)),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn words_from_the_end(text: &str, most: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let begin = match rest.rfind(char::is_whitespace) {
            Some(space) if words.len() < most => space + rest[space..].chars().next().map_or(1, char::len_utf8),
            Some(_) => 0,
            None => 0,
        };
        words.push(&rest[begin..]);
        rest = rest[..begin].trim_end();
    }
    words
}
