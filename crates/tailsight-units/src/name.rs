//! Names of tasks as text, without loss: the kernel takes any bytes, and cuts them at 15, also inside a character.
//!
//! In: a name's bytes. Out: text that is the same for the same bytes only, and the bytes again. UTF-8 stays as it is; every
//! other byte, and control characters, are written `\xNN`, as is a backslash that would begin such an escape.

/// The text of a name.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let text = chunk.valid();
        for (at, c) in text.char_indices() {
            if c.is_control() || (c == '\\' && escape(&text.as_bytes()[at..]).is_some()) {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8).bytes().for_each(|byte| push_escape(&mut out, byte));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_escape(&mut out, *byte));
    }
    out
}

fn push_escape(out: &mut String, byte: u8) {
    out.push_str(&format!("\\x{byte:02x}"));
}

/// The byte of an escape at the start of `text`.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', digits @ ..] = text else { return None };
    let digits = digits.get(..2).filter(|d| d.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The bytes of a name's text: the reverse of [`from_bytes`].
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let Some(&first) = rest.first() {
        let (byte, taken) = escape(rest).map_or((first, 1), |byte| (byte, 4));
        out.push(byte);
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cut_inside_a_character_differ_and_come_back() {
        // The kernel cut the sixth character of each after its second byte.
        let (a, b) = (
            &b"\xe3\x82\xb5\xe3\x83\xbc\xe3\x83\x90\xe3\x83"[..],
            &b"\xe3\x82\xb5\xe3\x83\xbc\xe3\x83\x90\xe3\x82"[..],
        );
        assert_eq!((from_bytes(a).as_str(), from_bytes(b).as_str()), (r"サーバ\xe3\x83", r"サーバ\xe3\x82"));
        for bytes in
            [a, b, b"nginx", b"", b"a\\b", b"a\\x41", b"\\x5cx41", b"\x1b[2J\n\x7f", b"\xc2\x9b", b"\\x4", b"\xff\\xff"]
        {
            assert_eq!(to_bytes(&from_bytes(bytes)), bytes, "{bytes:?}");
        }
        assert_eq!(from_bytes(b"worker/3 a\\b"), r"worker/3 a\b", "an ordinary name stays as it is");
        assert_eq!(from_bytes(b"a\\x41"), r"a\x5cx41");
        assert_ne!(from_bytes(b"A"), from_bytes(b"\\x41"));
        assert!(!from_bytes(b"\x1b]0;\x07\xc2\x9b").contains(char::is_control));
    }
}
