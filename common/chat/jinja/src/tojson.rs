//! The filter `tojson` as transformers defines it: Python's json.dumps with ensure_ascii off, and with the arguments
//! ensure_ascii, indent, separators and sort_keys. minijinja's own filter escapes for HTML.
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

struct Writer<'a> {
    state: &'a State<'a, 'a>,
    out: String,
    charged: usize,
    ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// Lists that a template built, or variables, can be nested so deep and no deeper.
const MOST_DEPTH: usize = 120;

pub fn tojson(state: &State, value: Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        match positional.get(index) {
            Some(value) => Ok(Some(value.clone())),
            None => named.get(name),
        }
    };
    let ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument(1, "indent")? {
        Some(value) if !value.is_none() && !value.is_undefined() => Some(indent_of(&value)?),
        _ => None,
    };
    let (item_separator, key_separator) = match argument(2, "separators")? {
        Some(value) if !value.is_none() => (separator(&value, 0)?, separator(&value, 1)?),
        _ => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
    };
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let mut writer =
        Writer { state, out: String::new(), charged: 0, ascii, indent, item_separator, key_separator, sort_keys };
    writer.value(&value, 0)?;
    Ok(writer.out)
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn indent_of(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    match value.as_i64() {
        Some(spaces) if spaces <= 1000 => Ok(" ".repeat(spaces.max(0) as usize)),
        _ => Err(bad("tojson: indent must be a text or a number of spaces up to 1000")),
    }
}

fn separator(separators: &Value, index: usize) -> Result<String, Error> {
    match separators.get_item_by_index(index)?.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(bad("tojson: separators must be two texts")),
    }
}

impl Writer<'_> {
    /// Pays for what was written since the last call, at minijinja's own price.
    fn charge(&mut self) -> Result<(), Error> {
        let bytes = self.out.len() - self.charged;
        if bytes >= 4 {
            self.state.consume_fuel((bytes / 4) as u64)?;
            self.charged = self.out.len();
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MOST_DEPTH {
            return Err(bad("tojson: the value is nested too deep"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.list(value, depth)?,
            // Python's json takes lists and dictionaries, and no other iterables: a list made by a slice is one of those here.
            ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => return Err(bad(format!("tojson: a value of type {kind} is not JSON"))),
        }
        self.charge()
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            let number = f64::try_from(value.clone())?;
            self.out.push_str(&python_float(number));
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                letter if letter < ' ' || (self.ascii && letter > '~') => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                letter => self.out.push(letter),
            }
        }
        self.out.push('"');
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()?.checked() {
            if !empty {
                self.out.push_str(&self.item_separator.clone());
            }
            empty = false;
            self.line(depth + 1);
            self.value(&item?, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys = Vec::new();
        for key in value.try_iter()?.checked() {
            keys.push(key?);
        }
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        let empty = keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            if index > 0 {
                self.out.push_str(&self.item_separator.clone());
            }
            self.line(depth + 1);
            self.key(key)?;
            self.out.push_str(&self.key_separator.clone());
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push('}');
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.text(key.as_str().unwrap_or_default()),
            ValueKind::None => self.out.push_str("\"null\""),
            ValueKind::Bool => self.out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" }),
            ValueKind::Number => {
                self.out.push('"');
                self.number(key)?;
                self.out.push('"');
            }
            kind => return Err(bad(format!("tojson: a key of type {kind} is not JSON"))),
        }
        Ok(())
    }
}

/// float.__repr__: the shortest digits that give the number back, with an exponent below 1e-4 and from 1e16 on.
fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return (if number > 0.0 { "Infinity" } else { "-Infinity" }).to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_printed_as_in_python() {
        let expected = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (1e-4, "0.0001"),
            (1.25e300, "1.25e+300"),
        ];
        for (number, text) in expected {
            assert_eq!(python_float(number), text);
        }
    }
}
