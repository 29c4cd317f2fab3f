//! The Huffman code of HPACK (RFC 7541 Appendix B). In: a coded string. Out: its bytes.
//!
//! The code is canonical: codes of a length follow each other in the order of their symbols, and the first one of a length follows the
//! last one of the length before. So the number of codes of each length and the order of the symbols are the whole table.

/// How many symbols have a code of so many bits.
const CODES: [u32; 31] =
    [0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4];

/// Symbols by code. The last code, of 30 ones, is the end of a string and may not be in one.
#[rustfmt::skip]
const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116,
    32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117,
    58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120, 121, 122,
    38, 42, 44, 59, 88, 90,
    33, 34, 40, 41, 63,
    39, 43, 124,
    35, 62,
    0, 36, 64, 91, 93, 126,
    94, 125,
    60, 96, 123,
    92, 195, 208,
    128, 130, 131, 162, 184, 194, 224, 226,
    153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230,
    129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233,
    1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239,
    9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237,
    199, 207, 234, 235,
    192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255,
    203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254,
    2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127, 220, 249,
    10, 13, 22,
];

/// Bits that may be left at the end, all ones.
const PADDING: u32 = 7;

/// Appends the string to `text`; `None` when it is none.
pub(super) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    // The bits since the last symbol, how many, the first code of this length, and the place of its symbol.
    let (mut code, mut bits, mut first, mut place) = (0_u32, 0, 0_u32, 0_u32);
    for byte in coded {
        for at in (0..8).rev() {
            code = code << 1 | u32::from(byte >> at & 1);
            bits += 1;
            first <<= 1;
            let codes = *CODES.get(bits)?;
            if code - first < codes {
                text.push(*SYMBOLS.get((place + code - first) as usize)?);
                (code, bits, first, place) = (0, 0, 0, 0);
            } else {
                (first, place) = (first + codes, place + codes);
            }
        }
    }
    (bits as u32 <= PADDING && code == (1 << bits) - 1).then_some(())
}

/// Codes a string, for tests: bit by bit.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let mut codes = vec![(0_u32, 0_usize); 256];
    let (mut code, mut place) = (0_u32, 0);
    for (bits, count) in CODES.iter().enumerate() {
        code <<= 1;
        for symbol in SYMBOLS.iter().skip(place).take(*count as usize) {
            codes[usize::from(*symbol)] = (code, bits);
            code += 1;
        }
        place += *count as usize;
    }
    let of_symbol = |symbol: &u8| {
        let (code, bits) = codes[usize::from(*symbol)];
        (0..bits).rev().map(move |at| code >> at & 1 == 1)
    };
    let bits: Vec<bool> = text.iter().flat_map(of_symbol).collect();
    bits.chunks(8).map(|bits| (0..8).fold(0, |byte, at| byte << 1 | u8::from(*bits.get(at).unwrap_or(&true)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(coded, &mut text).map(|()| text)
    }

    /// RFC 7541 C.4 and C.6.
    #[test]
    fn strings_of_the_rfc_are_read() {
        let string = |coded: &[u8]| String::from_utf8(decoded(coded).unwrap()).unwrap();
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(string(&host), "www.example.com");
        assert_eq!(string(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]), "no-cache");
        assert_eq!(string(&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]), "custom-value");
        assert_eq!(string(&[]), "");
    }

    #[test]
    fn every_symbol_has_one_code() {
        assert_eq!(CODES.iter().sum::<u32>(), 257);
        let mut symbols = SYMBOLS;
        symbols.sort_unstable();
        assert!(symbols.iter().enumerate().all(|(at, symbol)| at == usize::from(*symbol)));
    }

    #[test]
    fn what_is_no_string_is_refused() {
        assert_eq!(decoded(&[0xff]), None, "eight bits of padding");
        assert_eq!(decoded(&[0xff; 4]), None, "the end of a string in it");
        assert_eq!(decoded(&[0x00]), None, "padding with zeros: `0`, then three bits");
    }
}
