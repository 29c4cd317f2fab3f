//! Arrow IPC streams from outside: how far a file can be read, decided before anything is decoded.
//!
//! In: a file. Out: the length of its readable front, the rows in it, and why it ends there. A stream is a schema, whole
//! record batches, and an end mark. Lengths in a damaged or hostile file are checked against the file's size and
//! against the rows before the decoder, which trusts them, allocates for them: reading takes memory in proportion to
//! the file, and only columns of plain types come through.

use std::fs::File;
use std::io::{BufReader, Read, Seek};

use arrow_ipc::{Buffer, Field, MessageHeader, RecordBatch, Schema, Type, root_as_message};

/// What can be read of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Readable {
    /// Bytes from the start that hold whole messages.
    pub bytes: u64,
    /// Rows in them.
    pub rows: u64,
    /// Why the stream ends there; `None`: its end mark follows.
    pub cut: Option<String>,
}

/// What a stream that ends at a message's border says: right for a recording that was killed.
pub(crate) const NO_END_MARK: &str = "it has no end mark";
/// Descriptions of a batch of our tables take less than 1 KiB; a column more takes less than 100 bytes.
const MAX_DESCRIPTION: u64 = 1 << 20;
/// Rows that a byte of a batch can stand for: zstd makes 65,536 equal rows of seven columns to some 200 bytes.
const MAX_ROWS_PER_BYTE: u64 = 1024;
/// Decoded bytes that a row may take: numbers, and a few short texts.
const MAX_BYTES_PER_ROW: u64 = 512;
/// What a batch of few rows may take beyond that (alignment, offsets).
const SLACK: u64 = 4096;

/// Why reading stops: the text says it.
type Checked<T> = Result<T, String>;

/// Goes over the messages of a stream without decoding them, as far as its first `size` bytes.
pub(crate) fn readable(file: &File, size: u64) -> std::io::Result<Readable> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut out = Readable::default();
    let mut columns = None;
    loop {
        match message(&mut reader, size, out.bytes, &mut columns)? {
            Ok(Some((bytes, rows))) => {
                out.bytes += bytes;
                out.rows += rows;
            }
            Ok(None) => return Ok(out),
            Err(why) => {
                out.cut = Some(why);
                return Ok(out);
            }
        }
    }
}

/// The buffers of each column, by the bytes of one of their elements: validity first, then offsets and data.
type Columns = Vec<Vec<u64>>;

/// One message: its bytes and rows; `None` at the end mark.
fn message(
    reader: &mut BufReader<&File>,
    size: u64,
    at: u64,
    columns: &mut Option<Columns>,
) -> std::io::Result<Checked<Option<(u64, u64)>>> {
    let left = size.saturating_sub(at);
    if left == 0 {
        return Ok(Err(NO_END_MARK.into()));
    }
    if left < 8 {
        return Ok(Err("it ends inside a message".into()));
    }
    let mut prefix = [0u8; 8];
    reader.read_exact(&mut prefix)?;
    let [a, b, c, d, length @ ..] = prefix;
    if [a, b, c, d] != [0xff; 4] {
        return Ok(Err("a message does not begin at the expected offset".into()));
    }
    let description = u64::from(u32::from_le_bytes(length));
    if description == 0 {
        return Ok(Ok(None));
    }
    if description > MAX_DESCRIPTION {
        return Ok(Err(format!("a message claims a description of {description} bytes")));
    }
    if description > left - 8 {
        return Ok(Err("it ends inside a message".into()));
    }
    let mut bytes = vec![0u8; description as usize];
    reader.read_exact(&mut bytes)?;
    let message = match root_as_message(&bytes) {
        Ok(message) => message,
        Err(_) => return Ok(Err("a message's description is damaged".into())),
    };
    let body = match u64::try_from(message.bodyLength()) {
        Ok(body) if body <= left - 8 - description => body,
        Ok(_) => return Ok(Err("it ends inside a message".into())),
        Err(_) => return Ok(Err("a message claims a negative length".into())),
    };
    let rows = match (message.header_type(), message.header_as_schema(), message.header_as_record_batch()) {
        (MessageHeader::Schema, Some(schema), _) if columns.is_none() => {
            match schema_columns(&schema) {
                Ok(found) => *columns = Some(found),
                Err(why) => return Ok(Err(why)),
            }
            reader.seek_relative(body as i64)?;
            0
        }
        (MessageHeader::RecordBatch, _, Some(batch)) => {
            let Some(columns) = columns else { return Ok(Err("it does not begin with a schema".into())) };
            match check_batch(reader, &batch, body, columns)? {
                Ok(rows) => rows,
                Err(why) => return Ok(Err(why)),
            }
        }
        (kind, ..) => {
            return Ok(Err(format!("it holds a message of kind {}", kind.variant_name().unwrap_or("unknown"))));
        }
    };
    Ok(Ok(Some((8 + description + body, rows))))
}

/// The width of an integer column; 0 when it is none that there is.
fn bits(field: &Field<'_>) -> u8 {
    field.type_as_int().and_then(|int| u8::try_from(int.bitWidth()).ok()).unwrap_or(0)
}

/// The buffers that each column has. Plain types only: versions of this format add columns, never nested ones.
fn schema_columns(schema: &Schema<'_>) -> Checked<Columns> {
    let fields = schema.fields().ok_or("its schema has no columns")?;
    fields
        .iter()
        .map(|field| {
            let name = field.name().unwrap_or("?");
            let plain = field.dictionary().is_none() && field.children().is_none_or(|c| c.is_empty());
            match field.type_type() {
                Type::Int if plain && matches!(bits(&field), 8 | 16 | 32 | 64) => {
                    Ok(vec![1, u64::from(bits(&field)) / 8])
                }
                Type::Bool if plain => Ok(vec![1, 1]),
                Type::Utf8 | Type::Binary if plain => Ok(vec![1, 4, 1]),
                other => Err(format!(
                    "column {name} has a type that runs do not use ({})",
                    other.variant_name().unwrap_or("?")
                )),
            }
        })
        .collect()
}

/// Checks the lengths of a batch and moves past its body. Returns its rows.
fn check_batch(
    reader: &mut BufReader<&File>,
    batch: &RecordBatch<'_>,
    body: u64,
    columns: &Columns,
) -> std::io::Result<Checked<u64>> {
    let bad = |why: &str| Ok(Err(format!("a batch {why}")));
    let Ok(rows) = u64::try_from(batch.length()) else { return bad("claims a negative number of rows") };
    if rows > body.saturating_mul(MAX_ROWS_PER_BYTE) {
        return bad("claims more rows than its bytes can hold");
    }
    let nodes = batch.nodes().map(|n| n.iter().map(|n| (n.length(), n.null_count())).collect::<Vec<_>>());
    let nodes = nodes.unwrap_or_default();
    if nodes.len() != columns.len() || nodes.iter().any(|n| *n != (batch.length(), 0)) {
        return bad("has columns of other lengths than its own, or empty fields");
    }
    let buffers: Vec<Buffer> = batch.buffers().map(|b| b.iter().copied().collect()).unwrap_or_default();
    let widths: Vec<u64> = columns.iter().flatten().copied().collect();
    if buffers.len() != widths.len() {
        return bad("has too few or too many buffers");
    }
    if batch.variadicBufferCounts().is_some_and(|c| !c.is_empty()) {
        return bad("counts buffers that no column has");
    }
    let start = reader.stream_position()?;
    let mut decoded = 0u64;
    for (buffer, width) in buffers.into_iter().zip(widths) {
        let (Ok(offset), Ok(length)) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length())) else {
            return bad("has a buffer of negative length");
        };
        if offset.checked_add(length).is_none_or(|end| end > body) {
            return bad("has a buffer outside its bytes");
        }
        let mut takes = length;
        if batch.compression().is_some() && length > 0 {
            if length < 8 {
                return bad("has a compressed buffer without a length");
            }
            // -1 says that the buffer is not compressed after all.
            let mut prefix = [0u8; 8];
            let here = reader.stream_position()?;
            reader.seek_relative((start + offset) as i64 - here as i64)?;
            reader.read_exact(&mut prefix)?;
            match i64::from_le_bytes(prefix) {
                -1 => takes = length - 8,
                n => match u64::try_from(n) {
                    Ok(n) => takes = n,
                    Err(_) => return bad("has a buffer that decodes to a negative length"),
                },
            }
        }
        if takes % width != 0 {
            return bad("has a buffer that ends inside a value");
        }
        decoded = decoded.saturating_add(takes);
    }
    if decoded > rows.saturating_mul(MAX_BYTES_PER_ROW).saturating_add(SLACK) {
        return bad("decodes to more bytes than its rows can take");
    }
    let past = (start + body) as i64 - reader.stream_position()? as i64;
    reader.seek_relative(past)?;
    Ok(Ok(rows))
}
