#!/bin/bash
#BSUB -J 'neox-hybrid-001-a1[1-3]%2'
#BSUB -nnodes 12
#BSUB -W 1:30
#BSUB -wt 2
#BSUB -wa URG
#BSUB -q pbatch
#BSUB -G my-bank
#BSUB -rn
#BSUB -cwd /scratch/me/results/neox-hybrid/001
#BSUB -o /scratch/me/results/neox-hybrid/001/arrays/neox-hybrid-001-a1.%I.log
#BSUB -core_isolation 2
# Written by hpcbench 1.0.0: study neox-hybrid, site lassen.
cd -- /scratch/me/results/neox-hybrid/001 || exit 1
index=${LSB_JOBINDEX:-}
# element k runs the job in line k
job=$(sed -n "${index:-none}p" arrays/neox-hybrid-001-a1.txt)
if [ -z "$job" ]; then
  echo arrays/neox-hybrid-001-a1.txt": no line ${index:-}: was this submitted as an array?" >&2
  exit 1
fi
exec bash "jobs/$job/job.sh" >> "jobs/$job/out.log" 2>&1
