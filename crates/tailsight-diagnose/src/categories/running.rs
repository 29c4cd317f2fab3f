//! Categories of running kernel code by its functions (NSight §5.2, Table 1), for time that is known function by function, as from
//! Intel PT.
//!
//! In: an owner whose frames include kernel functions. Out: a [`CategoryMatch`]. The other frames and the context are matched as
//! without functions. If they only show that the application's thread was in the kernel, the innermost function with an entry in the
//! function table decides. Other tasks are not looked into.

use tailsight_lifetime::{Context, Frame, Interrupt, Leg, Owner, Role};

use super::{CategoryMatch, CategoryTable, Task, said_by, shown};
use crate::cause::Subject;

/// A function of the kernel.
pub(super) fn is_kernel_function(frame: &Frame) -> bool {
    matches!(frame, Frame::Function { kernel: true, .. })
}

impl CategoryTable {
    /// As [`CategoryTable::classify`], of an owner with functions of the kernel.
    pub(super) fn of_kernel_functions(
        &self,
        owner: &Owner,
        task: &Task<'_>,
        leg: Leg,
        role: Role,
        app: &str,
        symbols: &[String],
    ) -> CategoryMatch {
        let all = owner.frames.len();
        let others: Vec<(usize, Frame)> =
            owner.frames.iter().copied().enumerate().filter(|(_, f)| !is_kernel_function(f)).collect();
        let plain = Owner { context: owner.context.clone(), frames: others.iter().map(|(_, f)| *f).collect() };
        let verdict = self.classify(&plain, task, leg, role, app, symbols);
        let last = others.last();
        // The functions that ran inside of everything else.
        let innermost = last.map_or(0, |(at, _)| at + 1);
        let own_call = owner.context == Context::Own && matches!(last, None | Some((_, Frame::Syscall { .. })));
        if own_call && let Some(said) = self.by_function(&owner.frames[innermost..], symbols) {
            return CategoryMatch { nested_from: innermost, ..said };
        }
        let handler = last.is_some_and(|(_, f)| f.is_interrupt(Interrupt::Packet));
        let nested_from = match others.get(verdict.nested_from) {
            Some((at, _)) => *at,
            None if handler || matches!(owner.context, Context::Own | Context::Ahead) => innermost,
            None => all,
        };
        CategoryMatch { nested_from, ..verdict }
    }

    /// What the function table says of functions, outermost first, that a thread runs in.
    fn by_function(&self, frames: &[Frame], symbols: &[String]) -> Option<CategoryMatch> {
        let name = |frame: &Frame| match *frame {
            Frame::Function { symbol, .. } => symbols.get(symbol as usize).map(String::as_str),
            _ => None,
        };
        let stack: Vec<&str> = frames.iter().rev().filter_map(name).collect();
        let said = self.functions.category_of(&stack)?;
        Some(CategoryMatch::new(said.category, Subject::named(shown(&said_by(&said))), 0))
    }
}
