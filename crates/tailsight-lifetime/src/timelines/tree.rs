//! The tree of everything that was nested on a core: a node is a task with the frames on top of it.
//!
//! A core's state is then one number, and a segment of a core's timeline takes 16 bytes.

use rustc_hash::FxHashMap;
use tailsight_trace::event::NET_RX;

use crate::model::{Frame, Interrupt};

/// A node of the tree.
pub type NodeId = u32;

/// What a node adds to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A task at the bottom: its thread id (0: idle).
    Task(u32),
    /// A frame on top of the parent.
    Frame(Frame),
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: NodeId,
    task: u32,
    step: Step,
    depth: u16,
    within: Within,
    /// The child that was asked for last, mostly the next one, too; itself when there is none.
    recent: NodeId,
}

/// What a core is inside of, at any level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// Anything that interrupts the current thread.
    pub interrupt: bool,
    /// The NET_RX softirq.
    pub net_rx: bool,
    /// A softirq that the current thread caused itself.
    pub inline_softirq: bool,
}

impl Within {
    fn and(self, frame: Frame) -> Within {
        Within {
            interrupt: self.interrupt || frame.is_interrupt(Interrupt::Packet),
            net_rx: self.net_rx || matches!(frame, Frame::Softirq { vec: NET_RX, .. }),
            inline_softirq: self.inline_softirq || matches!(frame, Frame::Softirq { inline: true, .. }),
        }
    }
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    tasks: FxHashMap<u32, NodeId>,
    children: FxHashMap<(NodeId, Frame), NodeId>,
}

impl Tree {
    /// The node of a task with nothing on top.
    pub fn task(&mut self, tid: u32) -> NodeId {
        let nodes = &mut self.nodes;
        *self.tasks.entry(tid).or_insert_with(|| {
            let id = nodes.len() as NodeId;
            let (step, within) = (Step::Task(tid), Within::default());
            nodes.push(Node { parent: id, task: tid, step, depth: 0, within, recent: id });
            id
        })
    }

    /// The node with one more frame on top.
    #[inline]
    pub fn push(&mut self, node: NodeId, frame: Frame) -> NodeId {
        let recent = self.nodes[node as usize].recent;
        let child = &self.nodes[recent as usize];
        if child.parent == node && child.step == Step::Frame(frame) {
            return recent;
        }
        self.other_child(node, frame)
    }

    /// A child that is not the one that was asked for last.
    #[inline(never)]
    fn other_child(&mut self, node: NodeId, frame: Frame) -> NodeId {
        let nodes = &mut self.nodes;
        let child = *self.children.entry((node, frame)).or_insert_with(|| {
            let id = nodes.len() as NodeId;
            let below = nodes[node as usize];
            let (depth, within) = (below.depth.saturating_add(1), below.within.and(frame));
            nodes.push(Node { parent: node, step: Step::Frame(frame), depth, within, recent: id, ..below });
            id
        });
        self.nodes[node as usize].recent = child;
        child
    }

    /// The frame on top, unless the node is a bare task.
    pub fn top(&self, node: NodeId) -> Option<Frame> {
        match self.nodes[node as usize].step {
            Step::Task(_) => None,
            Step::Frame(frame) => Some(frame),
        }
    }

    /// The node below.
    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node as usize].parent
    }

    /// The task at the bottom.
    pub fn task_of(&self, node: NodeId) -> u32 {
        self.nodes[node as usize].task
    }

    /// The node below the topmost frame that matches, or the node itself when none does.
    pub fn pop_through(&self, node: NodeId, matches: impl Fn(Frame) -> bool) -> NodeId {
        let mut at = node;
        while let Some(frame) = self.top(at) {
            at = self.parent(at);
            if matches(frame) {
                return at;
            }
        }
        node
    }

    /// What the node is inside of.
    pub fn within(&self, node: NodeId) -> Within {
        self.nodes[node as usize].within
    }

    /// How many frames are on top of the task.
    pub fn depth(&self, node: NodeId) -> usize {
        usize::from(self.nodes[node as usize].depth)
    }

    /// The frames, outermost first.
    pub fn frames(&self, node: NodeId) -> Vec<Frame> {
        let mut out = Vec::new();
        let mut at = node;
        while let Some(frame) = self.top(at) {
            out.push(frame);
            at = self.parent(at);
        }
        out.reverse();
        out
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushing_twice_is_one_node_and_popping_unwinds_what_is_nested() {
        let mut tree = Tree::default();
        let task = tree.task(7);
        let soft = Frame::Softirq { vec: 3, inline: false };
        let a = tree.push(task, soft);
        let b = tree.push(a, Frame::Packet { own: true, port: 80, app: 0 });
        assert_eq!(tree.push(task, soft), a);
        // Not the child that was asked for last, and the same frame on top of it.
        let hard = tree.push(task, Frame::Csd);
        assert_eq!((tree.push(task, soft), tree.push(task, Frame::Csd)), (a, hard));
        let twice = tree.push(a, soft);
        assert_eq!((tree.parent(twice), tree.push(a, soft)), (a, twice));
        assert_eq!(tree.pop_through(b, |f| matches!(f, Frame::Softirq { vec: 3, .. })), task);
        assert_eq!(tree.pop_through(b, |f| matches!(f, Frame::Irq { .. })), b);
        assert_eq!(tree.frames(b), vec![soft, Frame::Packet { own: true, port: 80, app: 0 }]);
        assert_eq!(tree.task_of(b), 7);
    }
}
