//! Sorts and reorders messages: a run's messages are a large part of the memory that reading it takes.

/// The items of these places, in this order; without a second copy of them when they are all there.
pub fn gathered<T: Copy>(mut items: Vec<T>, order: &[u32]) -> Vec<T> {
    if order.len() != items.len() {
        return order.iter().map(|&i| items[i as usize]).collect();
    }
    // Cycle by cycle: each place takes its item, whose place is the next to be filled.
    let mut done = vec![false; items.len()];
    for start in 0..items.len() {
        if done[start] {
            continue;
        }
        let (first, mut at) = (items[start], start);
        loop {
            done[at] = true;
            let from = order[at] as usize;
            if from == start {
                items[at] = first;
                break;
            }
            items[at] = items[from];
            at = from;
        }
    }
    items
}

/// Sorts (number, id). Numbers that span hours in ns and ids up to millions fit into one number together, which is half as much to move.
pub fn sort_pairs(pairs: &mut [(u64, u32)]) {
    let bounds = |(least, most, ids): (u64, u64, u32), &(number, id): &(u64, u32)| {
        (least.min(number), most.max(number), ids | id)
    };
    let (least, most, ids) = pairs.iter().fold((u64::MAX, 0, 0), bounds);
    let id_bits = u32::BITS - ids.leading_zeros();
    if most.saturating_sub(least).leading_zeros() < id_bits {
        return pairs.sort_unstable();
    }
    let mut packed: Vec<u64> = pairs.iter().map(|&(number, id)| (number - least) << id_bits | u64::from(id)).collect();
    #[expect(clippy::stable_sort_primitive, reason = "this sort makes use of what is in order already")]
    packed.sort();
    let apart = |packed: u64| ((packed >> id_bits) + least, (packed & ((1 << id_bits) - 1)) as u32);
    pairs.iter_mut().zip(packed).for_each(|(pair, packed)| *pair = apart(packed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pairs_are_in_the_order_of_both(
            few in prop::collection::vec((0u64..50, 0u32..50), 0..80),
            late in prop::collection::vec((u64::MAX - 50..=u64::MAX, 0u32..50), 0..80),
            wide in prop::collection::vec((any::<u64>(), any::<u32>()), 0..80),
            same in any::<(u64, u32)>(),
        ) {
            for mut pairs in [few, late, wide, vec![same; 3], vec![(u64::MAX, u32::MAX)], vec![(0, u32::MAX)]] {
                let mut expected = pairs.clone();
                expected.sort();
                sort_pairs(&mut pairs);
                prop_assert_eq!(pairs, expected);
            }
        }

        #[test]
        fn each_place_has_its_item(keys in prop::collection::vec(any::<u8>(), 0..200), some in any::<bool>()) {
            let mut order: Vec<u32> = (0..keys.len() as u32).collect();
            order.sort_by_key(|&i| keys[i as usize]);
            if some {
                order.retain(|i| i % 3 != 0);
            }
            let expected: Vec<u8> = order.iter().map(|&i| keys[i as usize]).collect();
            prop_assert_eq!(gathered(keys, &order), expected);
        }
    }
}
