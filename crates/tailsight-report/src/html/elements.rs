//! The data of the page, in script elements of a type that no browser runs: each holds base64 of gzip.
//!
//! In: bytes by name. Out: HTML. Base64 has no character with a meaning in HTML, so the name of a task cannot end an element. Elements are
//! compressed in parallel; the page unpacks each when it first needs it.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use rayon::prelude::*;

/// One element: its name (`[a-z0-9-]`, chosen here) and its bytes.
pub(crate) struct Element {
    name: String,
    bytes: Vec<u8>,
}

impl Element {
    pub(super) fn new(name: impl Into<String>, bytes: Vec<u8>) -> Element {
        Element { name: name.into(), bytes }
    }

    /// Integers or floats, little-endian.
    pub(super) fn column<const N: usize>(name: &str, values: impl Iterator<Item = [u8; N]>) -> Element {
        Element::new(name, values.flatten().collect())
    }

    /// A value as JSON.
    pub(crate) fn json(name: impl Into<String>, value: &impl serde::Serialize) -> Element {
        Element::new(name, serde_json::to_vec(value).expect("plain data with text keys always serialises"))
    }
}

/// The bytes as gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::with_capacity(bytes.len() / 4 + 64), Compression::new(5));
    out.write_all(bytes).and_then(|()| out.finish()).expect("writing to memory does not fail")
}

/// All elements as HTML, in their order.
pub(super) fn html(elements: &[Element]) -> String {
    let element = |e: &Element| {
        let data = BASE64.encode(gzip(&e.bytes));
        format!("<script type=\"application/gzip\" id=\"data-{}\">{data}</script>\n", e.name)
    };
    elements.par_iter().map(element).collect::<Vec<_>>().concat()
}
