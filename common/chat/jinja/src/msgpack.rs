//! Decodes the variables of a render from MessagePack, as nlohmann::json writes it: nil, booleans, numbers, strings, arrays
//! and maps with keys of text. The order of a map's keys is kept.
use minijinja::value::Value;

/// Deeper values would be printed and freed with as many nested calls.
const MOST_DEPTH: usize = 100;

struct Decoder<'a> {
    rest: &'a [u8],
}

pub fn decode_map(bytes: &[u8]) -> Result<Vec<(Value, Value)>, String> {
    let mut decoder = Decoder { rest: bytes };
    let size = match decoder.byte()? {
        tag @ 0x80..=0x8f => usize::from(tag & 15),
        0xde => decoder.size(2)?,
        0xdf => decoder.size(4)?,
        tag => return Err(format!("the variables begin with the byte {tag}, want a map")),
    };
    decoder.pairs(size, 0)
}

impl<'a> Decoder<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], String> {
        if size > self.rest.len() {
            return Err("the variables are cut off".to_owned());
        }
        let (taken, rest) = self.rest.split_at(size);
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    /// A big-endian number of `bytes` bytes.
    fn unsigned(&mut self, bytes: usize) -> Result<u64, String> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, bytes: usize) -> Result<i64, String> {
        let unused = 64 - 8 * bytes as u32;
        Ok((self.unsigned(bytes)? << unused) as i64 >> unused)
    }

    fn size(&mut self, bytes: usize) -> Result<usize, String> {
        Ok(self.unsigned(bytes)? as usize)
    }

    fn text(&mut self, size: usize) -> Result<Value, String> {
        std::str::from_utf8(self.take(size)?)
            .map(Value::from)
            .map_err(|_| "a text is not UTF-8".to_owned())
    }

    fn list(&mut self, size: usize, depth: usize) -> Result<Value, String> {
        let mut items = Vec::with_capacity(size.min(self.rest.len()));
        for _ in 0..size {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::from(items))
    }

    fn pairs(&mut self, size: usize, depth: usize) -> Result<Vec<(Value, Value)>, String> {
        let mut pairs = Vec::with_capacity(size.min(self.rest.len()));
        for _ in 0..size {
            let key = self.value(depth + 1)?;
            pairs.push((key, self.value(depth + 1)?));
        }
        Ok(pairs)
    }

    fn map(&mut self, size: usize, depth: usize) -> Result<Value, String> {
        Ok(Value::from_pairs(self.pairs(size, depth)?))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MOST_DEPTH {
            return Err(format!("the messages or tools are nested deeper than {MOST_DEPTH} levels"));
        }
        match self.byte()? {
            tag @ 0x00..=0x7f => Ok(Value::from(u64::from(tag))),
            tag @ 0x80..=0x8f => self.map(usize::from(tag & 15), depth),
            tag @ 0x90..=0x9f => self.list(usize::from(tag & 15), depth),
            tag @ 0xa0..=0xbf => self.text(usize::from(tag & 31)),
            0xc0 => Ok(Value::from(())),
            0xc2 => Ok(Value::from(false)),
            0xc3 => Ok(Value::from(true)),
            0xca => Ok(Value::from(f64::from(f32::from_bits(self.unsigned(4)? as u32)))),
            0xcb => Ok(Value::from(f64::from_bits(self.unsigned(8)?))),
            tag @ 0xcc..=0xcf => Ok(Value::from(self.unsigned(1 << (tag - 0xcc))?)),
            tag @ 0xd0..=0xd3 => Ok(Value::from(self.signed(1 << (tag - 0xd0))?)),
            tag @ 0xd9..=0xdb => {
                let size = self.size(1 << (tag - 0xd9))?;
                self.text(size)
            }
            tag @ 0xdc..=0xdd => {
                let size = self.size(2 << (tag - 0xdc))?;
                self.list(size, depth)
            }
            tag @ 0xde..=0xdf => {
                let size = self.size(2 << (tag - 0xde))?;
                self.map(size, depth)
            }
            tag @ 0xe0..=0xff => Ok(Value::from(i64::from(tag as i8))),
            tag => Err(format!("the variables have a value of the unknown kind {tag}")),
        }
    }
}
