//! The recorder's hooks beside what they recorded: a packet that had not come would have run none.
//!
//! In: a message's parts in a leg. Out: the hooks' part, and how much of it came with some of the others: each begin of what they tell of
//! runs a hook once, and all hooks are taken to be equally long.

use tailsight_lifetime::{Context, Owner, Part, Role};

/// The hooks of a leg, in one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hooks {
    /// Which of the parts they are.
    pub place: usize,
    /// Their time.
    pub ns: u64,
    /// Begins of the other parts.
    begins: u64,
}

impl Hooks {
    /// None where no hook ran, or nothing else did.
    pub fn of(owners: &[Owner], parts: &[Part], role: Role) -> Option<Hooks> {
        let hooks = |part: &Part| owners.get(part.owner as usize).is_some_and(|o| o.context == Context::Profiler);
        let place = parts.iter().position(|part| part.role == role && hooks(part))?;
        let others = parts.iter().filter(|part| part.role == role && !hooks(part));
        let begins = others.map(|part| u64::from(part.count)).sum();
        (begins > 0).then_some(Hooks { place, ns: parts[place].ns, begins })
    }

    /// The time that came with so many begins.
    pub fn with(&self, begins: u64) -> u64 {
        (u128::from(self.ns) * u128::from(begins.min(self.begins)) / u128::from(self.begins)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_divided_by_begins_within_their_role() {
        let owners = [Context::Own, Context::Profiler, Context::Idle].map(|context| Owner { context, frames: vec![] });
        let part = |role, owner, count, ns| Part { role, owner, count, ns };
        let parts =
            [part(Role::R, 2, 7, 100), part(Role::A, 0, 1, 100), part(Role::A, 1, 4, 1_000), part(Role::A, 2, 3, 50)];
        let hooks = Hooks::of(&owners, &parts, Role::A).unwrap();
        assert_eq!((hooks.place, hooks.ns), (2, 1_000));
        assert_eq!([0, 1, 3, 4, 9].map(|begins| hooks.with(begins)), [0, 250, 750, 1_000, 1_000]);
        assert_eq!(Hooks::of(&owners, &parts, Role::R), None);
        assert_eq!(Hooks::of(&owners, &parts[2..3], Role::A), None);
    }
}
