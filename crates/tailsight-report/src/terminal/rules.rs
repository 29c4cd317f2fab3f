//! Which rules said what sleeps were for, on the terminal: of the focus, or of one message.
//!
//! In: [`RuleShare`]s, or the pieces of a message's path. Out: text; none where no rule was asked.

use std::collections::BTreeMap;

use tailsight_diagnose::RuleShare;
use tailsight_diagnose::show::Span;
use tailsight_lifetime::Rule;

use super::text::{paint, wrap};
use super::{Style, units};

/// The rules with their times and what they say, the largest first.
pub fn rules(shares: &[RuleShare], style: &Style) -> String {
    if shares.is_empty() {
        return String::new();
    }
    let title = "Why (the rules that said what sleeps were for, and the time that each decided; docs/rules.md):";
    let mut lines = vec![String::new()];
    lines.extend(wrap(title, style.columns(), "").iter().map(|line| paint(style, "1", line)));
    for share in shares {
        let says = Rule::of_id(&share.rule).map_or("", Rule::says);
        let begin = format!(" {:>8}  {:<17}  ", units::duration(share.mean_ns), share.rule);
        let width = begin.chars().count();
        let said = wrap(says, style.columns().saturating_sub(width).max(20), "");
        let indents = std::iter::once(begin).chain(std::iter::repeat(" ".repeat(width)));
        lines.extend(indents.zip(said).map(|(indent, line)| indent + &line));
    }
    lines.iter().fold(String::new(), |out, line| out + line.trim_end() + "\n")
}

/// The rules that decided of one message.
pub fn of_message(spans: &[Span]) -> Vec<RuleShare> {
    let mut ns_of_rule: BTreeMap<&str, u64> = BTreeMap::new();
    for span in spans {
        if let Some(rule) = &span.rule {
            *ns_of_rule.entry(rule).or_default() += span.ns;
        }
    }
    let share = |(rule, mean_ns): (&str, u64)| RuleShare { rule: rule.to_owned(), mean_ns, messages: 1 };
    let mut shares: Vec<RuleShare> = ns_of_rule.into_iter().map(share).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.mean_ns));
    shares
}
