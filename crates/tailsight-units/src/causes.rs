//! An error with its causes as one text. In: an error. Out: what `{:#}` of anyhow prints, for crates that do not use anyhow.
//!
//! An error of these crates does not repeat its source in its own text, so whoever prints one prints the chain.

use std::error::Error;

/// The error's text and those of its sources, outermost first, separated by colons.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (**error).source());
    let mut words: Vec<String> = causes.map(ToString::to_string).collect();
    words.dedup();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("cannot read a file")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn every_cause_stands_once() {
        let error = Outer(std::io::Error::from_raw_os_error(2));
        assert_eq!(chain(&error), "cannot read a file: No such file or directory (os error 2)");
    }
}
